"""What the likelihood of very many dependent latents asks of their density, compiled once.

Everything is a function of theta, of one or several x, and of the data, which are handed in: the
same programs serve other data with the same structure.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from marginax._core.factors import multiply
from marginax._core.programs import Program
from marginax.likelihood.blocks import Blocks
from marginax.model.structure import Maps, Structure

__all__ = ["Latents", "latents_of"]

BATCH = 8  # draws whose curvature is taken at a time
Density = Callable[[Array, Array, Any], Array]


class Latents(NamedTuple):
    """A block of latents with what was compiled for it.

    Attributes:
        structure: of its curvature.
        data: of the problem.
        start: where a search for the mode begins.
        score: `score(theta, x, data) -> (l, grad_x l)`.
        curvature: `curvature(theta, x, data, maps)`, H on the pattern.
        slopes: `slopes(theta, x, data, maps, weights)`, the gradients of l and of sum(weights H) in
            theta, and of the latter in x.
        cross: `cross(theta, x, data, w)`, the gradient of w' grad_x l in theta.
        complete: `complete(theta, x, data, maps, weights)`, minus the Hessian in theta of
            l - sum(weights H) / 2.
        values: `values(theta, xs, data)`, l at each of several x.
        pulls: `pulls(theta, xs, data)`, grad_x l at each of several x.
        mixed: `mixed(theta, x, data, maps)`, the derivatives in theta of grad_x l and of H, a row
            for every parameter.
        bend: `bend(entries, xs)`, the products of several matrices on the pattern with several x.
        stein_scores: `stein_scores(theta, x, data, away)`, of several x = m + away: l, grad_theta l
            and grad_x l; and for every parameter b - D away / 2, b and D the derivatives in it of
            grad_x l and of H at m.
        means: `means(theta, xs, data, maps)`, of grad_x l and of H over several x.
        lift: `lift(entries, share)`, a factor of H with its diagonal raised until there is one.
    """

    structure: Structure
    data: Any
    start: Array
    score: Any
    curvature: Any
    slopes: Any
    cross: Any
    complete: Any
    values: Any
    pulls: Any
    mixed: Any
    bend: Any
    stein_scores: Any
    means: Any
    lift: Any


def latents_of(blocks: Blocks, structure: Structure) -> Latents:
    """Compiles what the likelihood of one block asks of its density."""

    def density(theta: Array, x: Array, data: Any) -> Array:
        return blocks.log_densities(theta, x[None], data)[0]

    def bend(entries: Array, x: Array) -> Array:
        return jax.vmap(lambda one: multiply(structure.factors.pattern, one, x))(entries)

    def compiled(name: str, function: Callable[..., Any]) -> Program:
        known = structure.identity
        return Program(function, None if known is None else f"{known} {name}")

    return Latents(
        structure,
        blocks.data,
        blocks.start[0],
        score=compiled("score", jax.value_and_grad(density, 1)),
        curvature=structure.curvature,
        slopes=compiled("slopes", partial(_slopes, density, structure)),
        cross=compiled("cross", partial(_cross, density)),
        complete=compiled("complete", partial(_complete, density, structure)),
        values=compiled("values", jax.vmap(density, (None, 0, None))),
        pulls=compiled("pulls", partial(_pulls, density)),
        mixed=compiled("mixed", partial(_mixed, density, structure)),
        bend=compiled("bend", bend),
        stein_scores=compiled("stein_scores", partial(_stein_scores, density)),
        means=compiled("means", partial(_means, density, structure)),
        lift=structure.lift,
    )


def _slopes(
    density: Density,
    structure: Structure,
    theta: Array,
    x: Array,
    data: Any,
    maps: Maps,
    weights: Array,
) -> tuple[Array, Array, Array]:
    of_sum = jax.grad(structure.weighted, (0, 1))(theta, x, data, maps, weights)
    return jax.grad(density)(theta, x, data), *of_sum


def _cross(density: Density, theta: Array, x: Array, data: Any, w: Array) -> Array:
    def along(theta: Array) -> Array:
        return jax.jvp(lambda x: density(theta, x, data), (x,), (w,))[1]

    return jax.grad(along)(theta)


def _complete(
    density: Density,
    structure: Structure,
    theta: Array,
    x: Array,
    data: Any,
    maps: Maps,
    weights: Array,
) -> Array:
    def expected(theta: Array) -> Array:
        bent = structure.weighted(theta, x, data, maps, weights)
        return density(theta, x, data) - bent / 2

    return -jax.hessian(expected)(theta)


def _pulls(density: Density, theta: Array, xs: Array, data: Any) -> Array:
    return jax.lax.map(lambda x: jax.grad(density, 1)(theta, x, data), xs, batch_size=BATCH)


def _mixed(
    density: Density, structure: Structure, theta: Array, x: Array, data: Any, maps: Maps
) -> tuple[Array, Array]:
    def both(theta: Array) -> tuple[Array, Array]:
        return jax.grad(density, 1)(theta, x, data), structure.curvature(theta, x, data, maps)

    of_score, of_curvature = jax.jacfwd(both)(theta)
    return of_score.T, of_curvature.T


def _stein_scores(
    density: Density, theta: Array, x: Array, data: Any, away: Array
) -> tuple[Array, Array, Array, Array]:
    def one(a: Array) -> Any:
        value, scores = jax.value_and_grad(density, (0, 1))(theta, x + a, data)

        def field(theta: Array) -> Array:
            score = jax.grad(density, 1)
            here, bend = jax.jvp(lambda x: score(theta, x, data), (x,), (a,))
            return here + bend / 2  # bend is -H a

        return value, *scores, jax.jacfwd(field)(theta).T

    return jax.lax.map(one, away, batch_size=BATCH)


def _means(
    density: Density, structure: Structure, theta: Array, xs: Array, data: Any, maps: Maps
) -> tuple[Array, Array]:
    def one(x: Array) -> Any:
        score = jax.grad(density, 1)(theta, x, data)
        return score, structure.curvature(theta, x, data, maps)

    scores, entries = jax.lax.map(one, xs, batch_size=BATCH)
    return jnp.mean(scores, axis=0), jnp.mean(entries, axis=0)
