r"""Which plate of a NumPyro model gives independent groups, and which group each term belongs to.

A plate that all latents are in is a candidate. Whether its groups interact is not written in the
model (a likelihood may index the latents as it likes), so it is found from derivatives: a term
l_k(x_1, ..., x_G) that depends on group g alone has

    sum_h w_h dl_k/dx_h = w_g sum_h dl_k/dx_h    for every choice of weights w

so that two directional derivatives, w = 1 and w = 1, ..., G, tell g, and random w whether it is so.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from marginax.interop.numpyro.density import NumPyroLogJoint

__all__ = ["GroupedLogJoint", "Plate", "block_names", "groups_of_terms", "shared_plates"]

SEEDS = (0, 1)  # points at which derivatives are taken: at one of them a term may be flat


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
class GroupedLogJoint:
    """log p_theta(x_g, y_g) of every group.

    Attributes:
        joint: the model's log joint.
        plate: the groups.
        owners: of every site, the group of every term.
    """

    joint: NumPyroLogJoint
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
    found = []
    first = next(iter(latents.values()))
    for plate in first["cond_indep_stack"]:
        axes = {name: _axis(site, plate.name) for name, site in latents.items()}
        shared = {name: axis for name, axis in axes.items() if axis is not None}
        sizes = {np.shape(latents[name]["value"])[axis] for name, axis in shared.items()}
        if len(shared) == len(latents) and sizes == {plate.size} and plate.size > 1:
            found.append(Plate(plate.name, plate.size, shared))
    return sorted(found, key=lambda plate: -plate.size)


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
    terms_of: Callable[[int, PyTree], dict[str, Array]],
    free_latent: PyTree,
    sites: Mapping[str, Any],
    plate: Plate,
) -> dict[str, np.ndarray] | None:
    """The group of every term, or None if a term depends on several.

    Args:
        terms_of: `terms_of(seed, latent)`, the terms at another theta for every seed.
        free_latent: all latents on the reals, groups first.
        sites: all sites of the model.
        plate: the groups.
    """
    found: dict[str, np.ndarray] = {}
    for seed in SEEDS:
        seen = _owners(partial(terms_of, seed), free_latent, seed)
        if seen is None:
            return None
        for name, owners in seen.items():
            before = found.get(name, owners)
            if np.any((before >= 0) & (owners >= 0) & (before != owners)):
                return None
            found[name] = np.where(before >= 0, before, owners)
    # A term that no latent enters is its place's in the plate, or outside of it anybody's.
    return {
        name: np.where(owners >= 0, owners, _places(sites.get(name), plate, owners.size))
        for name, owners in found.items()
    }


def _places(site: Any, plate: Plate, num_terms: int) -> np.ndarray:
    """The group of every term of a site by its place in the plate; zeros if it is not in it."""
    axis = None if site is None else _axis(site, plate.name)
    if axis is None or np.prod(site["fn"].batch_shape) != num_terms:
        return np.zeros(num_terms, int)
    shape = site["fn"].batch_shape
    along = np.arange(plate.size).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return np.broadcast_to(along, shape).ravel()


def _owners(terms_of: Callable[[PyTree], Any], latent: PyTree, seed: int) -> Any:
    """The group of every term at one point; -1 where no latent enters; None if several do."""
    random = np.random.default_rng(seed)
    num_groups = jax.tree.leaves(latent)[0].shape[0]

    def normal(leaf: Array) -> Array:
        return jnp.asarray(random.normal(size=leaf.shape), leaf.dtype)

    point = jax.tree.map(lambda leaf: leaf + 0.5 * normal(leaf), latent)
    direction = jax.tree.map(normal, latent)
    weights = [
        np.ones(num_groups),
        np.arange(num_groups) / num_groups,
        random.normal(size=num_groups),
    ]

    @jax.jit
    def probes(point: PyTree) -> Any:
        along = jax.linearize(terms_of, point)[1]
        return [
            along(jax.tree.map(lambda leaf, w=w: leaf * _like(w, leaf), direction)) for w in weights
        ]

    plain, by_place, at_random = (
        {name: np.asarray(term, float).ravel() for name, term in probe.items()}
        for probe in probes(point)
    )
    found = {}
    for name, total in plain.items():
        here, check = by_place[name], at_random[name]
        if not all(np.all(np.isfinite(part)) for part in (total, here, check)):
            return None
        depends = (total != 0) | (here != 0) | (check != 0)
        safe = np.where(total == 0, 1.0, total)
        group = np.rint(num_groups * here / safe)
        inside = (group >= 0) & (group < num_groups)
        group = np.where(inside, group, 0).astype(int)
        one = inside & (np.abs(check / safe - weights[2][group]) < 1e-6)
        if np.any(depends & ~one):
            return None
        found[name] = np.where(depends, group, -1)
    return found


def _like(weights: np.ndarray, leaf: Array) -> Array:
    """Weights over groups, to multiply a leaf with the groups first."""
    return jnp.asarray(weights.reshape(-1, *[1] * (leaf.ndim - 1)), leaf.dtype)


def _axis(site: Any, plate: str) -> int | None:
    """Which axis of a site's value is a plate's."""
    for frame in site["cond_indep_stack"]:
        if frame.name == plate:
            return len(site["fn"].batch_shape) + int(frame.dim)
    return None
