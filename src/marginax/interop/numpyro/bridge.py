"""A NumPyro model as a `Problem`, and a fit back as what `Predictive` takes.

`numpyro.param` sites are theta; unobserved `sample` sites are the latents. A plate that all latents
are in, and whose groups the likelihood keeps apart, makes a grouped problem; other plates name the
blocks of the latent for kernels; subsampled plates are minibatches for `run(..., batch_size=...)`.
"""

import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from marginax.interop.numpyro.density import NumPyroDensity, split
from marginax.interop.numpyro.plates import (
    GroupDensities,
    Plate,
    block_names,
    groups_of_terms,
    outside_plates,
    shared_plates,
)
from marginax.interop.numpyro.sites import Sites, num_observations, read, to_reals, transform
from marginax.model.inputs import widened
from marginax.model.log_joint import LogJoint, as_log_joint
from marginax.model.problem import Problem
from marginax.model.transforms.trees import forward, inverse, transforms_for

__all__ = ["NumPyroFit", "from_numpyro", "to_numpyro"]


class NumPyroFit(NamedTuple):
    """A fit for `numpyro.infer.Predictive(model, posterior_samples, params=params)`.

    Attributes:
        params: the estimate, by site.
        posterior_samples: draws of the latents at it, by site, one leading axis over all draws.
    """

    params: dict[str, Array]
    posterior_samples: dict[str, Array]


def from_numpyro(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Problem:
    """The problem of a NumPyro model with its data.

    Args:
        model: with `numpyro.param` sites (what is estimated) and continuous unobserved
            `numpyro.sample` sites (what is integrated out).
        args: of the model.
        kwargs: of the model.

    Returns:
        A `Problem` whose theta and latent are dicts by site. It is grouped, with the groups first
        in every latent, if there is a plate that all latents are in and no observation depends on
        the latents of two of its groups. A subsampled plate is taken whole by `fit`; if the problem
        is not grouped and no latent is in the plate, `run(..., problem.data, batch_size=100)` takes
        minibatches of it.
    """
    if importlib.util.find_spec("numpyro") is None:
        raise ImportError(
            "from_numpyro needs NumPyro. Install it with `pip install 'marginax[numpyro]'`."
        )
    sites = read(model, args, kwargs)
    theta = {name: jnp.asarray(site["value"], float) for name, site in sites.params.items()}
    latent = {
        name: to_reals(site) if name in sites.moving else jnp.asarray(site["value"])
        for name, site in sites.latents.items()
    }
    joint = _log_joint(model, args, kwargs, sites, theta, latent)
    whole: dict[str, Any] = {
        "theta": theta,
        "data": joint.data,
        "theta_transforms": {
            name: transform(site["kwargs"].get("constraint"), site["value"])
            for name, site in sites.params.items()
        },
        "num_observations": num_observations(sites),
    }
    notes: list[str] = outside_plates(sites.latents)
    for plate in shared_plates(sites.latents):
        each = plate.groups_first(latent)
        one = {name: value[0] for name, value in each.items()}
        maps = _maps(sites, one)
        owners = _owners(joint, sites, plate, whole, maps, each)
        if isinstance(owners, str):
            notes.append(f"The plate {plate.name!r} gives no groups: {owners}.")
        else:
            return Problem.grouped(
                GroupDensities(joint, plate, owners).densities,
                latent=one,
                latent_transforms=maps,
                num_groups=plate.size,
                **whole,
            )
    return Problem(
        LogJoint(joint.density, joint.batching),
        latent=latent,
        latent_transforms=_maps(sites, latent),
        latent_blocks={name: block_names(site) for name, site in sites.latents.items()},
        notes=tuple(notes),
        **whole,
    )


def to_numpyro(fit: Any) -> NumPyroFit:
    """The estimate and posterior draws of a fit of `from_numpyro`."""
    problem = fit.problem
    density = as_log_joint(problem.group_log_joints or problem.log_joint).function
    owner = getattr(density, "__self__", None)
    plate, joint = (
        (owner.plate, owner.joint) if isinstance(owner, GroupDensities) else (None, owner)
    )
    if not isinstance(joint, NumPyroDensity):
        raise ValueError(
            "This fit is not of a NumPyro model: its problem was not made by `from_numpyro`."
        )
    theta = dict(fit.theta)
    draws = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), fit.posterior)
    if plate is not None:
        draws = jax.vmap(plate.as_in_model)(draws)
    if joint.moving:
        draws = jax.vmap(lambda latent: joint.constrained(theta, latent))(draws)
    return NumPyroFit(theta, draws)


def _log_joint(
    model: Any, args: Any, kwargs: Any, sites: Sites, theta: PyTree, latent: PyTree
) -> NumPyroDensity:
    """The log joint, with as many of the arguments as data as the model allows."""
    inside = {frame.name for site in sites.latents.values() for frame in site["cond_indep_stack"]}
    free = [name for name in sites.subsampled if name not in inside]
    batched = free[0] if len(sites.subsampled) == 1 and free else None
    for is_data in (_is_array, _is_float_array, lambda leaf: False):
        arrays, rebuild = split((args, kwargs), is_data)
        joint = NumPyroDensity(
            model, arrays, rebuild, tuple(sites.latents), sites.moving, sites.subsampled, batched
        )
        try:
            jax.eval_shape(joint.density, theta, latent, joint.data)
            break
        except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):
            # The model reads numbers, such as how many groups an index has: those stay constants.
            continue
    return joint


def _maps(sites: Sites, latent: PyTree) -> dict[str, Any]:
    """Where latents of these shapes live; moving ones are on the reals already."""
    return {
        name: transform(
            None if name in sites.moving else sites.latents[name]["fn"].support, latent[name]
        )
        for name in latent
    }


def _owners(
    joint: NumPyroDensity,
    sites: Sites,
    plate: Plate,
    whole: dict[str, Any],
    maps: dict[str, Any],
    each: PyTree,
) -> dict[str, np.ndarray] | str:
    """The group of every term of the log joint, or in words why groups are not apart."""
    with jax.enable_x64(True):
        theta, latent, data = widened((whole["theta"], each, joint.data))
        theta_maps = transforms_for(whole["theta_transforms"], theta, "theta")
        latent_maps = transforms_for(maps, jax.tree.map(lambda leaf: leaf[0], latent), "latent")
        free = (
            inverse(theta_maps, theta),
            jax.vmap(lambda one: inverse(latent_maps, one))(latent),
        )

        def terms_of(theta: PyTree, latent: PyTree) -> dict[str, Array]:
            constrained = jax.vmap(lambda one: forward(latent_maps, one))(latent)
            return joint.terms(forward(theta_maps, theta), plate.as_in_model(constrained), data)

        try:
            return groups_of_terms(terms_of, *free, sites.every, plate)
        except TypeError as error:
            return f"the model cannot be traced in double precision ({error})"


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | jax.Array) and np.asarray(leaf).dtype.kind in "biuf"


def _is_float_array(leaf: Any) -> bool:
    return _is_array(leaf) and np.asarray(leaf).dtype.kind == "f"
