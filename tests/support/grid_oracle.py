"""Log marginal likelihoods by dense adaptive grids, and their maxima: NumPy and SciPy only.

    log_integrals(h, centers, widths)    log integrals of exp(h) over a line, one for every group
    log_integrals_2d(h, start, width)    over a plane
    climb, polish                        up a log likelihood, to a `Top` with its curvature
    judge_directions                     which coordinates have a maximum, an end, or nothing

This shares nothing with the library that it judges: no modes, no Gauss-Hermite rule, no JAX. A line
is first looked at through points on all scales around the anchors that a model names (its prior,
its data), then panels are laid where the mass is, each with a Gauss-Legendre rule.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.optimize import minimize
from scipy.special import logsumexp

Array = np.ndarray
LOWEST = -1e300  # what stands for log 0, so that differences are numbers

_REACH = np.concatenate([[0.0], np.geomspace(0.02, 40.0, 14), np.geomspace(100.0, 1e6, 7)])
_REACH = np.concatenate([-_REACH[:0:-1], _REACH])


def log_integrals(
    log_integrand: Callable[[Array], Array],
    centers: Array,
    widths: Array,
    limits: tuple[float, float] = (-np.inf, np.inf),
    panels: int = 48,
    kink: float | None = None,
) -> Array:
    """log of the integral of exp(h_g) over the line, for every group g.

    Args:
        log_integrand: from points [groups, points] to h there.
        centers: where mass may be [groups, anchors].
        widths: on what scale around each [groups, anchors].
        limits: of the line.
        panels: how many in the last rule, of 10 nodes each.
        kink: where h has a corner.
    """
    with np.errstate(all="ignore"):
        points = (centers[:, :, None] + widths[:, :, None] * _REACH).reshape(len(centers), -1)
        points = np.sort(np.clip(points, *limits), axis=1)
        height = _heights(log_integrand, points)
        for _ in range(2):  # zooms in on what falls between the first points
            more = _spread(points, height, 48)[:, 1:-1]
            points = np.concatenate([points, more], axis=1)
            height = np.concatenate([height, _heights(log_integrand, more)], axis=1)
            order = np.argsort(points, axis=1)
            points = np.take_along_axis(points, order, axis=1)
            height = np.take_along_axis(height, order, axis=1)
        edges = _spread(points, height, panels + 1)
        if kink is not None:
            edges = np.sort(np.concatenate([edges, np.full((len(edges), 1), kink)], axis=1), axis=1)
        nodes, weights = leggauss(10)
        half = np.diff(edges, axis=1)[:, :, None] / 2
        inside = edges[:, :-1, None] + half * (1 + nodes)
        log_weights = np.log(np.maximum(half * weights, 1e-320))
        flat = inside.reshape(len(edges), -1)
        return logsumexp(
            _heights(log_integrand, flat) + log_weights.reshape(len(edges), -1), axis=1
        )


def _heights(log_integrand: Callable[[Array], Array], points: Array) -> Array:
    height = log_integrand(points)
    return np.where(np.isfinite(height), height, LOWEST)


def _spread(points: Array, height: Array, count: int) -> Array:
    """`count` points per group, dense where there is mass and where h changes.

    Half of them go by the change of h down to 45 below its top, so that between two of them exp(h)
    falls by a few powers of e at most, on the flanks of a Gaussian as in the tail of a Cauchy; four
    tenths by the mass of exp(h / 2); and a tenth to the given points, wherever they are.
    """
    below = np.maximum(height - height.max(axis=1, keepdims=True), -45.0)
    steps = np.diff(points, axis=1)
    steps = steps / np.maximum(points[:, -1:] - points[:, :1], 1e-300)
    tempered = np.exp(below / 2)
    mass = 0.4 * _shares((tempered[:, 1:] + tempered[:, :-1]) * steps)
    mass += 0.5 * _shares(np.abs(np.diff(below, axis=1))) + 0.1 / steps.shape[1]
    share = np.cumsum(np.concatenate([np.zeros_like(mass[:, :1]), mass], axis=1), axis=1)
    share = share / share[:, -1:]
    rows = 2.0 * np.arange(len(points))[:, None]  # all groups in one call: each has its own stretch
    wanted = rows + np.linspace(0.0, 1.0, count)
    return np.interp(wanted.ravel(), (rows + share).ravel(), points.ravel()).reshape(wanted.shape)


def _shares(parts: Array) -> Array:
    return parts / np.maximum(parts.sum(axis=1, keepdims=True), 1e-300)


def log_integrals_2d(
    log_integrand: Callable[[Array], Array],
    start: Array,
    width: Array,
    step: float = 0.4,
    last: dict[str, Array] | None = None,
) -> Array:
    """log of the integral over the plane of exp(h_g), where h_g has one top, for every group g.

    Args:
        log_integrand: from points [groups, points, 2] to h there.
        start: near the mass [groups, 2].
        width: how wide it may be, for both coordinates [groups, 2] or one of all [2].
        step: of the trapezoidal rule, in standard deviations.
        last: where the grids of a call nearby were, which this one begins with and changes.
    """
    groups = len(start)
    center = start.copy()
    root = np.broadcast_to(np.eye(2) * np.asarray(width)[..., None, :], (groups, 2, 2)).copy()
    if last:
        center, root = last["center"], last["root"]
    coarse = _square(5.0, 0.5)
    with np.errstate(all="ignore"):
        for _ in range(25):  # the grid moves and shrinks until it holds the mass
            points = center[:, None] + np.einsum("gij,pj->gpi", root, coarse)
            height = _heights(log_integrand, points)
            share = np.exp(height - height.max(axis=1, keepdims=True))
            share = share / share.sum(axis=1, keepdims=True)
            mean = np.einsum("gp,pi->gi", share, coarse)
            away = coarse - mean[:, None]
            spread = np.einsum("gp,gpi,gpj->gij", share, away, away) + 0.01 * np.eye(2)
            center = center + np.einsum("gij,gj->gi", root, mean)
            root = root @ np.linalg.cholesky(spread)
            if np.abs(mean).max() < 0.1 and np.abs(spread - np.eye(2)).max() < 0.3:
                break
        if last is not None:
            last.update(center=center, root=root)
        fine = _square(7.0, step)
        points = center[:, None] + np.einsum("gij,pj->gpi", root, fine)
        volume = np.log(np.abs(np.linalg.det(root))) + 2 * np.log(step)
        return logsumexp(_heights(log_integrand, points), axis=1) + volume


def _square(reach: float, step: float) -> Array:
    line = np.arange(-reach, reach + step / 2, step)
    return np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)


class Top(NamedTuple):
    """A maximum of a log likelihood, with the information there."""

    at: Array
    value: float
    information: Array


class Directions(NamedTuple):
    """What a maximum says about each coordinate.

    Attributes:
        inner: coordinates with a maximum of their own.
        ends: those along which the likelihood does not fall to one side: the rest are with them
            fixed.
        errors: standard errors of the inner ones, with the others fixed; NaN elsewhere.
        joint: the same with nothing fixed.
        flat: whether a direction among the inner ones has hardly any information.
    """

    inner: tuple[int, ...]
    ends: tuple[int, ...]
    errors: Array
    joint: Array
    flat: bool


Function = Callable[[Array], float]


def gradient(function: Function, at: Array, steps: Array) -> Array:
    """By central differences, with a step for every coordinate."""
    moves = np.diag(steps)
    return np.array([function(at + move) - function(at - move) for move in moves]) / (2 * steps)


def hessian(function: Function, at: Array, steps: Array) -> Array:
    """By central differences, with a step for every coordinate."""
    size, here = len(at), function(at)
    moves = np.diag(steps)
    found = np.empty((size, size))
    for i in range(size):
        found[i, i] = function(at + moves[i]) - 2 * here + function(at - moves[i])
        for j in range(i):
            same = function(at + moves[i] + moves[j]) + function(at - moves[i] - moves[j])
            other = function(at + moves[i] - moves[j]) + function(at - moves[i] + moves[j])
            found[i, j] = found[j, i] = (same - other) / 4
    return found / np.outer(steps, steps)


def climb(function: Function, start: Array, bounds: tuple[Array, Array]) -> Top:
    """Up a log likelihood from a start, by BFGS within bounds; `polish` comes after it."""
    low, high = bounds

    def lower(at: Array) -> float:
        value = function(at)
        return -value if np.isfinite(value) else 1e10

    found = minimize(
        lower,
        np.clip(start, low, high),
        method="L-BFGS-B",
        bounds=list(zip(low, high, strict=True)),
        options={"eps": 1e-5, "maxiter": 80, "ftol": 1e-9, "gtol": 1e-4},
    )
    return Top(found.x, -float(found.fun), np.empty((0, 0)))


def polish(function: Function, top: Top, bounds: tuple[Array, Array], rounds: int = 4) -> Top:
    """Newton's last steps, taken where they raise the likelihood, and the information there."""
    at, value = top.at, top.value
    low, high = bounds
    information = np.empty((0, 0))
    steps = np.full(len(at), 3e-2)
    for _ in range(rounds):
        value = function(at)
        information = -hessian(function, at, steps)
        usual = np.sqrt(1 / np.maximum(np.diag(information), 1.0))
        steps = np.clip(0.15 * usual, 1e-3, 0.2)  # the grid itself has an error of 1e-8
        values, vectors = np.linalg.eigh(information)
        slope = vectors.T @ gradient(function, at, 0.1 * steps)
        move = vectors @ np.where(values > 1e-4, slope / np.maximum(values, 1e-4), 0.0)
        small = np.abs(move) / usual
        for shrink in (1.0, 0.3, 0.05):
            there = np.clip(at + shrink * move, low, high)
            if function(there) > value - 1e-9:
                at = there
                break
        else:
            break
        if small.max() < 1e-4:
            break
    return Top(at, function(at), _information(function, at, -hessian(function, at, steps)))


def _information(function: Function, at: Array, rough: Array) -> Array:
    """The information by differences along its own directions, in their standard errors.

    Along coordinates, a direction that two of them share is a small difference of large numbers.
    """
    values, vectors = np.linalg.eigh(rough)
    basis = vectors / np.sqrt(np.maximum(values, 1e-2))
    along = -hessian(lambda z: function(at + basis @ z), np.zeros(len(at)), np.full(len(at), 0.05))
    back = np.linalg.inv(basis)
    return back.T @ along @ back


def judge_directions(
    function: Function, top: Top, kinds: tuple[str, ...], bounds: tuple[Array, Array]
) -> Directions:
    """Which coordinates have a maximum of their own, and their standard errors.

    A coordinate of the logarithm or logit of something is at an end if the likelihood is as high
    four units further out, any other if it is so four standard errors out; the likelihood is flat
    if that is so to both sides. Any coordinate is at an end if it rests at a bound.
    """
    size = len(top.at)
    with np.errstate(all="ignore"):
        joint = np.sqrt(np.diag(np.linalg.pinv(top.information)))
    ends, flat = [], False
    for i, kind in enumerate(kinds):
        at_bound = min(top.at[i] - bounds[0][i], bounds[1][i] - top.at[i]) < 1e-6
        far = 4.0 if kind != "real" else 4.0 * min(joint[i], 10.0)
        sides = (-far, far) if np.isfinite(far) else ()
        high = [_as_high(function, top, i, side, bounds) for side in sides]
        flat = flat or (len(high) == 2 and all(high) and not at_bound)
        if at_bound or any(high):
            ends.append(i)
    inner = [i for i in range(size) if i not in ends]
    errors = np.full(size, np.nan)
    if inner:
        information = top.information[np.ix_(inner, inner)]
        scale = np.sqrt(np.maximum(np.diag(information), 1e-12))
        smallest = np.linalg.eigvalsh(information).min()
        relative = np.linalg.eigvalsh(information / np.outer(scale, scale)).min()
        flat = flat or bool(smallest < 1e-3 or relative < 1e-6)
        with np.errstate(all="ignore"):
            errors[inner] = np.sqrt(np.diag(np.linalg.pinv(information)))
    return Directions(tuple(inner), tuple(ends), errors, joint, flat)


def _as_high(
    function: Function, top: Top, i: int, move: float, bounds: tuple[Array, Array]
) -> bool:
    """Whether a likelihood is as high with a coordinate elsewhere, once the others follow."""
    moved = top.at.copy()
    moved[i] += move
    lower = top.value - function(moved)
    if not 0.01 <= lower < 20.0 or len(moved) == 1:
        return bool(lower < 0.01)
    fixed = tuple(np.where(np.arange(len(moved)) == i, moved, bound) for bound in bounds)
    return climb(function, moved, fixed).value > top.value - 0.01
