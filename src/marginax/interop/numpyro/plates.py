r"""Which plate of a NumPyro model gives independent groups, and which group each term belongs to.

A plate that all latents are in is a candidate. Whether its groups interact is not written in the
model (a likelihood may index the latents as it likes), so it is found from derivatives: a term
l_k(x_1, ..., x_G) that depends on group g alone has

    sum_h w_h dl_k/dx_h = w_g sum_h dl_k/dx_h    for every choice of weights w

so that two directional derivatives, w = 1 and w = 1, ..., G, tell g, and random w whether it is so.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from marginax.interop.numpyro.density import NumPyroDensity

__all__ = [
    "GroupDensities",
    "Plate",
    "block_names",
    "groups_of_terms",
    "outside_plates",
    "shared_plates",
]

# How far theta and latents are moved, on the reals, to where derivatives are taken: near the start
# a coupling may be zero and a term flat.
REACH = (
    *((0.3, 0.5), (0.3, 0.5), (0.3, 2.0), (1.0, 2.0), (1.0, 5.0), (2.5, 5.0)),
    *((0.3, 10.0), (0.3, 30.0)) * 8,
)
NOBODY, SEVERAL = -1, -2
# A slope this much smaller than the largest of its site is what rounding leaves of terms that
# cancel: a saturated `Bernoulli(logits=...)` has 1 - 1 for its slope.
FAINT = 1e-9


class Plate(NamedTuple):
    """A plate that all latents are in.

    Attributes:
        name: of the plate.
        size: of the plate.
        axes: which axis of every latent it is.
    """

    name: str
    size: int
    axes: dict[str, int]

    def groups_first(self, values: Mapping[str, Any]) -> dict[str, Array]:
        """Latents as the model has them, with the groups first."""
        return {name: jnp.moveaxis(value, self.axes[name], 0) for name, value in values.items()}

    def as_in_model(self, values: Mapping[str, Any]) -> dict[str, Array]:
        """The reverse."""
        return {name: jnp.moveaxis(value, 0, self.axes[name]) for name, value in values.items()}


@dataclass(frozen=True, eq=False)
class GroupDensities:
    """log p_theta(x_g, y_g) of every group.

    Attributes:
        joint: the model's log joint.
        plate: the groups.
        owners: of every site, the group of every term.
    """

    joint: NumPyroDensity
    plate: Plate
    owners: Mapping[str, np.ndarray]

    def densities(self, theta: PyTree, latent: PyTree, data: Any) -> Array:
        """One number per group; latents have the groups first."""
        terms = self.joint.terms(theta, self.plate.as_in_model(latent), data)
        each = (self._by_group(name, term) for name, term in terms.items())
        return sum(each, start=jnp.zeros(self.plate.size))

    def _by_group(self, name: str, term: Array) -> Array:
        owners, num_groups = self.owners[name], self.plate.size
        each = owners.size // num_groups
        if np.array_equal(owners, np.repeat(np.arange(num_groups), each)):
            return jnp.sum(term.reshape(num_groups, each), axis=1)
        return jax.ops.segment_sum(term.ravel(), owners, num_groups)


def shared_plates(latents: Mapping[str, Any]) -> list[Plate]:
    """The plates that all latents are in, largest first."""
    plates = []
    first = next(iter(latents.values()))
    for plate in first["cond_indep_stack"]:
        axes = {name: _axis(site, plate.name) for name, site in latents.items()}
        shared = {name: axis for name, axis in axes.items() if axis is not None}
        sizes = {np.shape(latents[name]["value"])[axis] for name, axis in shared.items()}
        if len(shared) == len(latents) and sizes == {plate.size} and plate.size > 1:
            plates.append(Plate(plate.name, plate.size, shared))
    return sorted(plates, key=lambda plate: -plate.size)


def outside_plates(latents: Mapping[str, Any]) -> list[str]:
    """Which plates of latents do not have all of them, in sentences."""
    plates = {frame.name for site in latents.values() for frame in site["cond_indep_stack"]}
    said = []
    for plate in sorted(plates):
        outside = [name for name, site in latents.items() if _axis(site, plate) is None]
        if outside:
            said.append(
                f"The plate {plate!r} gives no groups: {', '.join(outside)} is a latent outside of "
                "it, which its groups share. What is to be estimated is a `numpyro.param`."
            )
    return said


def block_names(site: Any) -> tuple[str, ...] | None:
    """The plates of a latent's leading axes, which name its blocks for a kernel."""
    by_axis = {_axis(site, plate.name): plate.name for plate in site["cond_indep_stack"]}
    names = []
    for axis in range(len(site["fn"].batch_shape)):
        if axis not in by_axis:
            break
        names.append(by_axis[axis])
    return tuple(names) or None


def groups_of_terms(
    terms_of: Callable[[PyTree, PyTree], dict[str, Array]],
    theta: PyTree,
    latent: PyTree,
    sites: Mapping[str, Any],
    plate: Plate,
) -> dict[str, np.ndarray] | str:
    """The group of every term; or why there are none, if a term has several or cannot be told.

    Args:
        terms_of: `terms_of(theta, latent)`, of free ones, the latent with the groups first.
        theta: free.
        latent: free.
        sites: all sites of the model.
        plate: the groups.
    """
    probe = _probe(terms_of)
    best: dict[str, _Seen] = {}
    changes: dict[str, np.ndarray] = {}
    for seed, (of_theta, of_latent) in enumerate(REACH):
        random = np.random.default_rng(seed)
        there = _moved(random, theta, of_theta)
        pair = [probe(random, there, _moved(random, latent, of_latent)) for _ in range(2)]
        for name in pair[0]:
            for seen in (one[name] for one in pair):
                best[name] = best.get(name, seen).with_other(seen)
                several = int(np.sum(best[name].owners == SEVERAL))
                if several:
                    return (
                        f"{several} of the {seen.owners.size} terms of {name!r} depend on the "
                        "latents of several of its groups"
                    )
            with np.errstate(invalid="ignore"):  # both may be -inf so far out
                difference = pair[0][name].terms - pair[1][name].terms
            moves = np.isfinite(difference) & (difference != 0)
            changes[name] = changes.get(name, False) | moves
    # Flat wherever it was looked at, and yet not constant: whose it is remains unknown.
    for name, seen in best.items():
        unknown = int(np.sum((seen.owners < 0) & changes[name]))
        if unknown:
            return (
                f"of {unknown} of the {seen.owners.size} terms of {name!r} it could not be told "
                "which group they depend on"
            )
    # A term that no latent enters is its place's in the plate, or outside of it anybody's.
    return {
        name: np.where(
            seen.owners >= 0, seen.owners, _places(sites.get(name), plate, seen.owners.size)
        )
        for name, seen in best.items()
    }


def _moved(random: np.random.Generator, tree: PyTree, size: float) -> PyTree:
    return jax.tree.map(lambda leaf: leaf + size * random.normal(size=leaf.shape), tree)


def _places(site: Any, plate: Plate, num_terms: int) -> np.ndarray:
    """The group of every term of a site by its place in the plate; zeros if it is not in it."""
    axis = None if site is None else _axis(site, plate.name)
    if axis is None or np.prod(site["fn"].batch_shape) != num_terms:
        return np.zeros(num_terms, int)
    shape = site["fn"].batch_shape
    along = np.arange(plate.size).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return np.broadcast_to(along, shape).ravel()


class _Seen(NamedTuple):
    """The terms of a site at a point, and the group that each depends on there.

    Attributes:
        terms: their values.
        owners: the group of each, or NOBODY, or SEVERAL.
        strength: the slope of each, in units of the largest of the site.
    """

    terms: np.ndarray
    owners: np.ndarray
    strength: np.ndarray

    def with_other(self, other: "_Seen") -> "_Seen":
        """What both points say: the stronger is believed where one of them is faint."""
        clash = (self.owners >= 0) & (other.owners >= 0) & (self.owners != other.owners)
        clash &= np.minimum(self.strength, other.strength) > FAINT
        clash |= (self.owners == SEVERAL) | (other.owners == SEVERAL)
        better = (other.owners >= 0) & ((self.owners < 0) | (other.strength > self.strength))
        owners = np.where(clash, SEVERAL, np.where(better, other.owners, self.owners))
        return _Seen(self.terms, owners, np.where(better, other.strength, self.strength))


def _probe(terms_of: Callable[[PyTree, PyTree], Any]) -> Callable[..., dict[str, _Seen]]:
    """A function that finds the group of every term at a point; compiled once for all points."""

    @jax.jit
    def derivatives(theta: PyTree, latent: PyTree, direction: PyTree, weights: Array) -> Any:
        terms, along = jax.linearize(lambda x: terms_of(theta, x), latent)
        return terms, jax.vmap(
            lambda w: along(jax.tree.map(lambda leaf: leaf * _like(w, leaf), direction))
        )(weights)

    def probe(random: np.random.Generator, theta: PyTree, latent: PyTree) -> dict[str, _Seen]:
        num_groups = jax.tree.leaves(latent)[0].shape[0]
        direction = jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape)), latent)
        at_random = random.normal(size=num_groups)
        weights = np.stack([np.ones(num_groups), np.arange(num_groups) / num_groups, at_random])
        terms, slopes = derivatives(theta, latent, direction, jnp.asarray(weights))
        return {
            name: _Seen(
                np.asarray(terms[name], float).ravel(),
                *_owners(np.asarray(slope, float).reshape(3, -1), at_random),
            )
            for name, slope in slopes.items()
        }

    return probe


def _owners(slopes: np.ndarray, at_random: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The group of every term, and how strongly it depends on it.

    NOBODY where no latent enters, it is not finite, or its slope is mere rounding; or SEVERAL.
    """
    num_groups = len(at_random)
    known = np.all(np.isfinite(slopes), axis=0)
    total, by_place, check = np.where(known, slopes, 0.0)
    safe = np.where(total == 0, 1.0, total)
    group = np.rint(num_groups * by_place / safe)
    inside = (group >= 0) & (group < num_groups)
    group = np.where(inside, group, 0).astype(int)
    one = inside & (np.abs(check / safe - at_random[group]) < 1e-6)
    size = np.max(np.abs(np.where(known, slopes, 0.0)), axis=0)
    strength = size / max(np.max(size, initial=0.0), np.finfo(float).tiny)
    several = np.where(strength > FAINT, SEVERAL, NOBODY)
    return np.where(size > 0, np.where(one, group, several), NOBODY), strength


def _like(weights: Array, leaf: Array) -> Array:
    """Weights over groups, to multiply a leaf with the groups first."""
    return weights.reshape(-1, *[1] * (leaf.ndim - 1))


def _axis(site: Any, plate: str) -> int | None:
    """Which axis of a site's value is a plate's."""
    for frame in site["cond_indep_stack"]:
        if frame.name == plate:
            return len(site["fn"].batch_shape) + int(frame.dim)
    return None
