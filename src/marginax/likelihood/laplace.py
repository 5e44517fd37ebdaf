r"""Laplace's approximation for very many dependent latents, by the factors of their curvature.

    log p(theta) = l(theta, x) + (n/2) log 2 pi - (1/2) log |H|,     H = -grad^2_x l at the mode x

With S = H^-1 on the pattern of H alone, held fixed, and c = grad_x <S, H>:

    d log p / d theta = grad_theta l - (1/2) grad_theta <S, H> - (1/2) c' H^-1 d^2 l / dx dtheta

exact for a Gaussian posterior, of which H does not depend on x.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from marginax.likelihood.many_latents import Latents
from marginax.model.structure import Structure

__all__ = [
    "Mode",
    "curvature_is_constant",
    "find_mode",
    "in_both_halves",
    "laplace_gradient",
    "laplace_value",
    "louis_hessian",
]

MOST_STEPS, MOST_HALVINGS = 100, 40
AT_REST = 1e-16  # half the squared length of a step in standard deviations, relative to n


class Mode(NamedTuple):
    """The mode of the latents at a theta.

    Attributes:
        x: where it is.
        value: l there.
        entries: of H on its pattern.
        factor: of H.
        is_found: whether the search came to rest at a maximum.
    """

    x: Array
    value: float
    entries: Array
    factor: Any
    is_found: bool


def find_mode(latents: Latents, theta: Array, start: Array) -> Mode:
    """Newton's method from a start, with the diagonal raised where H has no factor.

    Args:
        latents: of the problem.
        theta: flat, on the reals.
        start: [n].
    """
    factors, data, maps = latents.structure.factors, latents.data, latents.structure.maps
    x = jnp.asarray(start)
    value, gradient = latents.score(theta, x, data)
    share, finished = 0.0, False
    lifted: Any = None
    before: Any = None
    for _ in range(MOST_STEPS):
        entries = latents.curvature(theta, x, data, maps)
        # That of a Gaussian posterior does not change, and has its factor already.
        if lifted is None or float(lifted.share) != share or not np.array_equal(entries, before):
            lifted, before = latents.lift(entries, jnp.asarray(share, x.dtype)), entries
        step = factors.solve(lifted.factor, gradient)
        promised = float(np.vdot(gradient, step)) / 2
        if not np.isfinite(promised):
            return Mode(x, float(value), entries, lifted.factor, False)
        is_maximum = float(lifted.share) == 0
        at_rest = is_maximum and promised < max(AT_REST * len(x), 1e-14 * abs(float(value)))
        if at_rest and finished:
            return Mode(x, float(value), entries, lifted.factor, True)
        if at_rest:  # one step more: the gradient in theta wants the mode to its last digits
            x, finished = x + step, True
            value, gradient = latents.score(theta, x, data)
            continue
        x, value, gradient, length = _uphill(latents, theta, x, step, float(value), promised)
        if length == 0:
            return Mode(x, float(value), entries, lifted.factor, is_maximum and promised < 1e-6)
        # A full step was good: the curvature may be trusted more; a short one says less of it.
        share = 0.0 if is_maximum or length == 1 else 4 * float(lifted.share)
    return Mode(x, float(value), entries, lifted.factor, False)


def _uphill(
    latents: Latents, theta: Array, x: Array, step: Array, value: float, promised: float
) -> tuple[Array, float, Array, float]:
    """The longest of ever shorter steps that does not lead down, its value, gradient and length."""
    length = 1.0
    for _ in range(MOST_HALVINGS):
        there, gradient = latents.score(theta, x + length * step, latents.data)
        if float(there) >= value + 1e-4 * length * promised:
            return x + length * step, float(there), gradient, length
        length /= 2
    there, gradient = latents.score(theta, x, latents.data)
    return x, float(there), gradient, 0.0


def laplace_value(latents: Latents, mode: Mode) -> float:
    """log p by Laplace's approximation."""
    n, factors = latents.structure.size, latents.structure.factors
    log_root = float(factors.log_determinant(mode.factor)) / 2
    return float(mode.value + n / 2 * np.log(2 * np.pi) - log_root)


def laplace_gradient(latents: Latents, theta: Array, mode: Mode) -> tuple[np.ndarray, Array]:
    """Its gradient in theta, and the entries of H^-1 with their weights in <H^-1, .>."""
    structure, data = latents.structure, latents.data
    weights = in_both_halves(structure, structure.factors.inverse_on_pattern(mode.factor))
    own, traced, pull = latents.slopes(theta, mode.x, data, structure.maps, weights)
    moved = structure.factors.solve(mode.factor, pull)
    along = latents.cross(theta, mode.x, data, moved)
    return np.asarray(own) - (np.asarray(traced) + np.asarray(along)) / 2, weights


def in_both_halves(structure: Structure, entries: Array) -> Array:
    """Weights of the places of a pattern in a sum over the whole symmetric matrix."""
    once = structure.pattern.rows == structure.pattern.cols
    return jnp.asarray(np.asarray(entries) * np.where(once, 1.0, 2.0))


def louis_hessian(
    latents: Latents, theta: Array, mode: Mode, weights: Array, z: Float[Array, "k n"]
) -> np.ndarray:
    """About the Hessian: what known latents would say, less what is missing, if Gaussian.

    With b_i and D_i the derivatives of grad_x l and of H in a parameter, what is missing is the
    covariance of b_i'(x - m) - (x - m)' D_i (x - m) / 2 under N(m, H^-1):

        b_i' H^-1 b_j + tr(H^-1 D_i H^-1 D_j) / 2

    with the trace by a few probes, whose error falls with the number of latents.

    Args:
        latents: of the problem.
        theta: flat, on the reals.
        mode: there.
        weights: as `laplace_gradient` returns them.
        z: probes, standard normal and the same for all theta.
    """
    structure, data = latents.structure, latents.data
    factors, at = structure.factors, (theta, mode.x, data, structure.maps)
    complete = np.asarray(latents.complete(*at, weights))
    of_score, of_curvature = latents.mixed(*at)
    linear = np.asarray(factors.half_solve(mode.factor, of_score))
    probes = factors.unwhiten(mode.factor, z)
    bent = latents.bend(of_curvature, probes)
    halves = np.asarray(factors.half_solve(mode.factor, bent.reshape(-1, structure.size)))
    halves = halves.reshape(len(of_curvature), -1)
    missing = linear @ linear.T + halves @ halves.T / (2 * len(z))
    return -(complete - missing)


def curvature_is_constant(latents: Latents, theta: Array, mode: Mode, z: Array) -> bool:
    """Whether H is the same at draws of the posterior as at the mode, to rounding: a Gaussian."""
    structure = latents.structure
    scale = np.sqrt(
        np.abs(np.asarray(mode.entries)[structure.pattern.rows == structure.pattern.cols])
    )
    units = scale[structure.pattern.rows] * scale[structure.pattern.cols]
    for away in np.asarray(structure.factors.unwhiten(mode.factor, z)):
        x = jnp.asarray(np.asarray(mode.x) + away)
        there = latents.curvature(theta, x, latents.data, structure.maps)
        if np.any(np.abs(np.asarray(there) - np.asarray(mode.entries)) > 1e-9 * units):
            return False
    return True
