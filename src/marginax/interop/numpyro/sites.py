"""What a NumPyro model says of its sites: theta, latents, their supports, and what is refused."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from marginax._core.threads import ONE_AT_A_TIME
from marginax.interop.numpyro.density import with_rows
from marginax.model.transforms import Transform, correlation_cholesky, identity, interval, positive

__all__ = ["Sites", "transform", "num_observations", "read", "to_reals"]


class Sites(NamedTuple):
    """The sites of a model, traced once.

    Attributes:
        every: all of them, by name.
        params: `numpyro.param` sites: theta.
        latents: unobserved `numpyro.sample` sites.
        moving: latents whose support is another when theta or another latent is.
        subsampled: plates that the model subsamples, with their full sizes.
    """

    every: dict[str, Any]
    params: dict[str, Any]
    latents: dict[str, Any]
    moving: tuple[str, ...]
    subsampled: dict[str, int]


def read(model: Callable[..., Any], args: Any, kwargs: Any) -> Sites:
    """Traces the model, its plates whole, and refuses by name what cannot be fitted."""
    subsampled: dict[str, int] = {}
    every = _trace(with_rows(model), args, kwargs)
    for name, site in _trace(model, args, kwargs).items():
        if site["type"] == "plate" and site["args"][1] not in (None, site["args"][0]):
            subsampled[name] = site["args"][0]
    params = {name: site for name, site in every.items() if site["type"] == "param"}
    latents = {
        name: site
        for name, site in every.items()
        if site["type"] == "sample" and not site["is_observed"]
    }
    _refuse(params, latents)
    moving = _moving(with_rows(model), args, kwargs, every, latents)
    return Sites(every, params, latents, moving, subsampled)


def num_observations(sites: Sites) -> int | None:
    """How many numbers are observed; masked ones are not."""
    count = 0.0
    for site in sites.every.values():
        if site["type"] == "sample" and site["is_observed"] and np.size(site["value"]):
            count += float(np.mean(_mask(site["fn"]))) * np.size(site["value"])
    return round(count) or None


def _mask(distribution: Any) -> np.ndarray:
    """The mask of a distribution, within others too; True without one."""
    while distribution is not None:
        mask = getattr(distribution, "_mask", None)
        if mask is not None:
            return np.asarray(mask)
        distribution = getattr(distribution, "base_dist", None)
    return np.asarray(True)


def to_reals(site: Any) -> Array:
    """The value of a latent on the reals."""
    from numpyro.distributions import biject_to

    return biject_to(site["fn"].support).inv(site["value"])


def transform(constraint: Any, value: Any) -> Transform:
    """Ours where there is one, which tables know best; otherwise NumPyro's own."""
    from numpyro.distributions import biject_to, constraints

    while isinstance(constraint, constraints.independent):
        constraint = constraint.base_constraint
    if constraint in (None, constraints.real, constraints.real_vector):
        return identity
    if constraint is constraints.positive:
        return positive
    if constraint is constraints.unit_interval:
        return interval(0.0, 1.0)
    if constraint is constraints.corr_cholesky and jnp.ndim(value) == 2:
        return correlation_cholesky(jnp.shape(value)[-1])
    to = biject_to(constraint)

    def log_abs_det_jacobian(u: Array) -> Array:
        return jnp.sum(to.log_abs_det_jacobian(u, to(u)))

    def contains(x: Any) -> Any:
        return jnp.all(constraint(x))

    # Bounds that differ from entry to entry belong to their places.
    elementwise = to.codomain.event_dim == 0 and all(
        np.ndim(bound) == 0 for bound in jax.tree.leaves(constraint)
    )
    return Transform(
        type(constraint).__name__.strip("_").lower(),
        to,
        to.inv,
        log_abs_det_jacobian,
        contains,
        elementwise=elementwise,
    )


def _trace(model: Any, args: Any, kwargs: Any, values: dict[str, Any] | None = None) -> Any:
    """The sites of the model; latents at the middle of their supports unless values are given."""
    from numpyro import handlers
    from numpyro.infer import init_to_uniform

    model = handlers.substitute(handlers.seed(model, 0), substitute_fn=init_to_uniform(radius=0.0))
    if values is not None:
        model = handlers.substitute(model, data=values)
    with ONE_AT_A_TIME:
        return handlers.trace(model).get_trace(*args, **kwargs)


def _refuse(params: dict[str, Any], latents: dict[str, Any]) -> None:
    discrete = [name for name, site in latents.items() if site["fn"].support.is_discrete]
    if discrete:
        raise ValueError(
            f"The latent {', '.join(discrete)} is discrete: it has no gradient. Sum it out of the "
            "model, for example with a mixture distribution (`dist.MixtureSameFamily`), or observe "
            "it."
        )
    masked = [name for name, site in latents.items() if not np.all(_mask(site["fn"]))]
    if masked:
        raise ValueError(
            f"The latent {', '.join(masked)} is masked: where the mask is False it has no density "
            "and cannot be integrated out. Mask observations instead, with `handlers.mask` around "
            "an observed site, and leave `obs_mask` out."
        )
    trees = [
        name for name, site in params.items() if isinstance(site["value"], dict | list | tuple)
    ]
    if trees:
        raise ValueError(
            f"The param {', '.join(trees)} is not an array. Make a `numpyro.param` site of every "
            "array in it."
        )
    if not params:
        raise ValueError(
            "The model has no `numpyro.param` site, so there is nothing to estimate: "
            f"{', '.join(latents) or 'none'} are latents and integrated out. Make a parameter of "
            "what you want to maximise over."
        )
    if not latents:
        raise ValueError(
            "The model has no unobserved `numpyro.sample` site, so there is nothing to integrate "
            "out. Maximise its log density with an optimizer instead."
        )


def _moving(
    model: Any, args: Any, kwargs: Any, every: dict[str, Any], latents: dict[str, Any]
) -> tuple[str, ...]:
    from numpyro.distributions import biject_to

    random = np.random.default_rng(0)
    moved = {}
    for name, site in every.items():
        if site["type"] == "param" or name in latents:
            support = (
                site["fn"].support if name in latents else site["kwargs"].get("constraint", None)
            )
            value = jnp.asarray(site["value"], float)
            if support is None:
                moved[name] = value + random.normal(size=value.shape)
            else:
                to = biject_to(support)
                free = to.inv(value)
                moved[name] = to(free + 0.3 * random.normal(size=jnp.shape(free)))
    again = _trace(model, args, kwargs, moved)
    return tuple(
        name
        for name in latents
        if not _same(every[name]["fn"].support, again[name]["fn"].support)
        # Bounds that differ from place to place: NumPyro's transform knows which is whose.
        or any(np.ndim(leaf) for leaf in jax.tree.leaves(every[name]["fn"].support))
    )


def _same(one: Any, other: Any) -> bool:
    """Whether two constraints are made of the same numbers, an interval of its ends."""
    before, after = (
        [np.asarray(leaf, float) for leaf in jax.tree.leaves(constraint)]
        for constraint in (one, other)
    )
    return len(before) == len(after) and all(
        np.shape(a) == np.shape(b) and np.allclose(a, b) for a, b in zip(before, after, strict=True)
    )
