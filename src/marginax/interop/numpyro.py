"""A NumPyro model as a `Problem`, and a fit back as what `Predictive` takes.

`numpyro.param` sites are theta; unobserved `sample` sites are the latents. theta is substituted on
its natural scale and never gets a Jacobian: a likelihood does not transform. A latent does, by its
bijection; one whose support depends on theta or on another latent is moved on the reals, with the
Jacobian that NumPyro computes anew at every point.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from marginax.bijections import Bijection, correlation_cholesky, identity, interval, positive
from marginax.problem import Problem

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
        A `Problem` whose theta and latent are dicts by site.
    """
    if importlib.util.find_spec("numpyro") is None:
        raise ImportError(
            "from_numpyro needs NumPyro. Install it with `pip install 'marginax[numpyro]'`."
        )
    sites = _trace(model, args, kwargs)
    params = {name: site for name, site in sites.items() if site["type"] == "param"}
    latents = {name: site for name, site in sites.items() if _is_latent(site)}
    _refuse(sites, params, latents)
    moving = _moving_supports(model, args, kwargs, sites, latents)
    theta = {name: jnp.asarray(site["value"], float) for name, site in params.items()}
    maps = {
        name: identity if name in moving else _bijection(site["fn"].support, site["value"])
        for name, site in latents.items()
    }
    start = {
        name: _to_reals(site) if name in moving else jnp.asarray(site["value"])
        for name, site in latents.items()
    }
    problem = partial(
        Problem,
        theta=theta,
        latent=start,
        constrain_theta={
            name: _bijection(site["kwargs"].get("constraint"), site["value"])
            for name, site in params.items()
        },
        constrain_latent=maps,
    )
    for is_data in (_is_array, _is_float_array, lambda leaf: False):
        parts = _split((args, kwargs), is_data)
        log_joint = NumPyroLogJoint(model, *parts, tuple(moving), tuple(latents))
        try:
            jax.eval_shape(log_joint.density, theta, start, log_joint.data)
            break
        except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError):
            # The model reads numbers, such as how many groups an index has: those stay constants.
            continue
    return problem(log_joint.density, data=log_joint.data)


def to_numpyro(fit: Any) -> NumPyroFit:
    """The estimate and posterior draws of a fit of `from_numpyro`."""
    density = getattr(fit.problem.log_joint, "__self__", None)
    if not isinstance(density, NumPyroLogJoint):
        raise ValueError(
            "This fit is not of a NumPyro model: its problem was not made by `from_numpyro`."
        )
    theta = dict(fit.theta)
    draws = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), fit.posterior)
    if density.moving:
        draws = jax.vmap(lambda latent: density.constrained(theta, latent))(draws)
    return NumPyroFit(theta, draws)


@dataclass(frozen=True, eq=False)
class NumPyroLogJoint:
    """The log density of a NumPyro model as a function of theta, latent and data.

    Attributes:
        model: the model.
        data: the arrays among its arguments.
        rebuild: from such arrays to (args, kwargs).
        moving: latents that are given on the reals, because their support is not fixed.
        latents: all of them.
    """

    model: Callable[..., Any]
    data: list[Any]
    rebuild: Callable[[list[Any]], Any]
    moving: tuple[str, ...]
    latents: tuple[str, ...]

    def density(self, theta: PyTree, latent: PyTree, data: list[Any]) -> Array:
        """log p_theta(x, y), with the Jacobian of moving latents only."""
        from numpyro.infer.util import log_density

        missing = set(self.latents) - set(latent)
        if missing:
            raise ValueError(f"The latents {sorted(missing)} are not given; the model has them.")
        args, kwargs = self.rebuild(data)
        value, _ = log_density(self._substituted(theta, latent), args, kwargs, {})
        return value

    def constrained(self, theta: PyTree, latent: PyTree) -> dict[str, Array]:
        """All latents on their natural scales."""
        from numpyro import handlers

        args, kwargs = self.rebuild(self.data)
        model = self._substituted(theta, latent)
        trace = handlers.trace(model).get_trace(*args, **kwargs)
        return {name: trace[name]["value"] for name in latent}

    def _substituted(self, theta: PyTree, latent: PyTree) -> Callable[..., Any]:
        from numpyro import handlers
        from numpyro.infer.util import _unconstrain_reparam

        # Nothing seeds the model: a latent that was forgotten has no key to be drawn with, and
        # fails instead of being drawn anew at every evaluation.
        theta, latent = jax.tree.map(jnp.asarray, (theta, latent))
        fixed = {name: value for name, value in latent.items() if name not in self.moving}
        model = handlers.substitute(self.model, data={**theta, **fixed})
        if not self.moving:
            return model
        free = {name: latent[name] for name in self.moving}
        return handlers.substitute(model, substitute_fn=partial(_unconstrain_reparam, free))


def _trace(model: Any, args: Any, kwargs: Any, values: dict[str, Any] | None = None) -> Any:
    """The sites of the model; latents at the middle of their supports unless values are given."""
    from numpyro import handlers
    from numpyro.infer import init_to_uniform

    model = handlers.substitute(handlers.seed(model, 0), substitute_fn=init_to_uniform(radius=0.0))
    if values is not None:
        model = handlers.substitute(model, data=values)
    return handlers.trace(model).get_trace(*args, **kwargs)


def _is_latent(site: Any) -> bool:
    return site["type"] == "sample" and not site["is_observed"]


def _refuse(sites: Any, params: dict[str, Any], latents: dict[str, Any]) -> None:
    """What cannot be fitted, by name."""
    discrete = [name for name, site in latents.items() if site["fn"].support.is_discrete]
    if discrete:
        raise ValueError(
            f"The latent {', '.join(discrete)} is discrete: it has no gradient. Sum it out of the "
            "model, for example with a mixture distribution (`dist.MixtureSameFamily`), or observe "
            "it."
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
            "out. Maximise its log density with an optimiser instead."
        )
    for name, site in sites.items():
        if site["type"] == "plate" and site["args"][1] not in (None, site["args"][0]):
            raise ValueError(
                f"The plate {name} takes {site['args'][1]} of {site['args'][0]} at a time: give "
                "the whole data, without subsample_size."
            )


def _moving_supports(
    model: Any, args: Any, kwargs: Any, sites: Any, latents: dict[str, Any]
) -> list[str]:
    """Latents whose support is another when theta and the other latents are."""
    from numpyro.distributions import biject_to

    random = np.random.default_rng(0)
    moved = {}
    for name, site in sites.items():
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
    found = []
    for name in latents:
        before, after = (_numbers(one[name]["fn"].support) for one in (sites, again))
        same = len(before) == len(after) and all(
            np.shape(a) == np.shape(b) and np.allclose(a, b)
            for a, b in zip(before, after, strict=True)
        )
        if not same:
            found.append(name)
    return found


def _numbers(constraint: Any) -> list[np.ndarray]:
    """The numbers that a constraint is made of, its ends for an interval."""
    return [np.asarray(leaf, float) for leaf in jax.tree.leaves(constraint)]


def _to_reals(site: Any) -> Array:
    from numpyro.distributions import biject_to

    return biject_to(site["fn"].support).inv(site["value"])


def _bijection(constraint: Any, value: Any) -> Bijection:
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

    def log_volume(u: Array) -> Array:
        return jnp.sum(to.log_abs_det_jacobian(u, to(u)))

    def inside(x: Any) -> Any:
        return jnp.all(constraint(x))

    return Bijection(type(constraint).__name__.strip("_").lower(), to, to.inv, log_volume, inside)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | jax.Array)


def _is_float_array(leaf: Any) -> bool:
    return _is_array(leaf) and np.asarray(leaf).dtype.kind == "f"


def _split(
    arguments: Any, is_data: Callable[[Any], bool]
) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The arrays among the arguments, and how to put such arrays back in their places."""
    leaves, structure = jax.tree.flatten(arguments)
    places = [i for i, leaf in enumerate(leaves) if is_data(leaf)]

    def rebuild(data: list[Any]) -> Any:
        whole = list(leaves)
        for place, value in zip(places, data, strict=True):
            whole[place] = value
        return jax.tree.unflatten(structure, whole)

    return [jnp.asarray(leaves[i]) for i in places], rebuild
