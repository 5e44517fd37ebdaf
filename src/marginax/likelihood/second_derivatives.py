"""Whether a likelihood's Hessian is that of its gradient, and one by differences where it is not.

Derivatives at nodes that stand still do not see a kink move across them: the second derivative of
|x - mean| is 0 at every node, though that of the integral is not (a Laplace prior, a threshold).
The gradient is right all the same, and its differences tell the curvature.
"""

import numpy as np

from marginax.likelihood.newton import Climb, Local
from marginax.likelihood.results import LikelihoodFunction

__all__ = ["by_differences", "curvature_agrees"]

STEP = 0.2  # of a standard error
AGREE = 0.03  # in the curvature along a direction, relative to it
ROUNDS = 5
MOST_FALL = 2.0  # by how much more the log likelihood may fall to one side of a step


def curvature_agrees(function: LikelihoodFunction, top: Climb) -> bool:
    """Whether the Hessian at a top is what the gradient around it says, along one direction.

    Args:
        function: what was climbed.
        top: where.
    """
    hessian = top.local.hessian
    diagonal = np.abs(np.diag(hessian))
    known = diagonal > 0
    signs = np.where(np.random.default_rng(0).random(len(diagonal)) < 0.5, -1.0, 1.0)
    lengths = np.where(known, STEP / np.sqrt(np.where(known, diagonal, 1.0)), 0.0)
    move = signs * lengths / np.sqrt(max(1, int(np.sum(known))))
    ends = [function.evaluate(top.theta + side * move, top.local.extra) for side in (-1.0, 1.0)]
    if not all(np.isfinite(end.value) for end in ends):
        return True  # at the edge of where it is defined nothing can be said
    falls = [top.local.value - end.value for end in ends]
    if min(falls) < 0.1 * max(falls):
        return True  # a likelihood that falls to one side alone has no curvature to speak of
    seen, expected = (ends[1].gradient - ends[0].gradient) / 2, hessian @ move
    size = np.sqrt(np.where(known, diagonal, 1.0))
    # In standard errors; a small part of the curvature that the diagonal has.
    return bool(np.all(np.abs(seen - expected) / size <= AGREE * np.linalg.norm(move * size)))


def by_differences(function: LikelihoodFunction) -> LikelihoodFunction:
    """The same likelihood with its Hessian from differences of the gradient."""

    def evaluate(theta: np.ndarray, start: object) -> Local:
        here = function.evaluate(theta, start)
        if not np.isfinite(here.value):
            return here
        rows = [_row(function, theta, here, i) for i in range(len(theta))]
        hessian = np.array(rows)
        return here._replace(hessian=(hessian + hessian.T) / 2)

    return function._replace(evaluate=evaluate)


def _row(function: LikelihoodFunction, theta: np.ndarray, here: Local, i: int) -> np.ndarray:
    """A row of the Hessian, with a step that is a fraction of the standard error it tells."""
    curvature = abs(here.hessian[i, i]) or max(abs(here.gradient[i]) ** 2, 1.0)
    row = here.hessian[i]
    for _ in range(ROUNDS):
        step = STEP / np.sqrt(curvature)
        move = np.zeros_like(theta)
        move[i] = step
        ends = [function.evaluate(theta + side * move, here.extra) for side in (-1.0, 1.0)]
        if not all(np.isfinite(end.value) for end in ends):
            curvature *= 16.0
            continue
        falls = [here.value - end.value for end in ends]
        if abs(falls[1] - falls[0]) > MOST_FALL:
            break  # far from any top, or too long a step: the derivative itself is better
        row = (ends[1].gradient - ends[0].gradient) / (2 * step)
        told = abs(row[i])
        if curvature / 4 < told < 4 * curvature or told == 0:
            break
        curvature = np.clip(told, curvature / 100, 100 * curvature)
    return row
