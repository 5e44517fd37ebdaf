"""Whether a likelihood's Hessian is that of its gradient, and derivatives by differences if not.

Derivatives at nodes that stand still do not see a kink move across them: the second derivative of
|x - mean| is 0 at every node, though that of the integral is not (a Laplace prior, a threshold).
With a node at the kink the gradient is noise too. Values are right all the same, and their
differences tell both.
"""

import numpy as np

from marginax.likelihood.functions import LikelihoodFunction
from marginax.likelihood.newton import Climb, Local, restricted, with_some

__all__ = ["by_differences", "checked_information", "curvature_agrees"]

STEP = 0.2  # of a standard error
AGREE = 0.03  # in the curvature along a direction, relative to it
ROUNDS = 16
ALIKE = 0.1  # falls of the likelihood, relative to what the curvature says
UPWARDS = 0.01  # an eigenvalue, where a coordinate alone has -1
MOST_BY_VALUES = 8  # parameters whose derivatives are taken from values


def curvature_agrees(function: LikelihoodFunction, top: Climb) -> bool:
    """Whether the Hessian at a top is what the gradient around it says, along one direction.

    Args:
        function: what was climbed.
        top: where.
    """
    if _bends_upwards(top.local.hessian):
        return False  # where nothing near is higher
    off = _disagreement(function, top, STEP)
    if off <= AGREE:
        return True
    # What a smooth likelihood differs by falls with the square of the step; what kinks do, stays.
    return _disagreement(function, top, STEP / 2) < off / 2.5


def _bends_upwards(hessian: np.ndarray) -> bool:
    """Whether a Hessian is not that of a maximum, by more than rounding."""
    scale = np.sqrt(np.maximum(np.abs(np.diag(hessian)), np.finfo(float).tiny))
    return bool(np.linalg.eigvalsh(hessian / np.outer(scale, scale)).max() > UPWARDS)


def _disagreement(function: LikelihoodFunction, top: Climb, step: float) -> float:
    """Of Hessian and gradient over a step of so many standard errors, relative to the curvature."""
    hessian = top.local.hessian
    diagonal = np.abs(np.diag(hessian))
    known = diagonal > 0
    signs = np.where(np.random.default_rng(0).random(len(diagonal)) < 0.5, -1.0, 1.0)
    lengths = np.where(known, step / np.sqrt(np.where(known, diagonal, 1.0)), 0.0)
    move = signs * lengths / np.sqrt(max(1, int(np.sum(known))))
    ends = [function.evaluate(top.theta + side * move, top.local.extra) for side in (-1.0, 1.0)]
    if not all(np.isfinite(end.value) for end in ends):
        return 0.0  # at the edge of where it is defined nothing can be said
    falls = [top.local.value - end.value for end in ends]
    if min(falls) < 0.1 * max(falls):
        return 0.0  # a likelihood that falls to one side alone has no curvature to speak of
    seen, expected = (ends[1].gradient - ends[0].gradient) / 2, hessian @ move
    size = np.sqrt(np.where(known, diagonal, 1.0))
    length = float(np.linalg.norm(move * size))
    return float(np.max(np.abs(seen - expected) / size)) / length if length > 0 else 0.0


def by_differences(function: LikelihoodFunction, top: Climb) -> LikelihoodFunction:
    """The same likelihood with derivatives from differences: of values, or of the gradient.

    Values are right whatever kinks there are, but many parameters would want too many of them.

    Args:
        function: what was climbed.
        top: where it came to; steps are fractions of the standard errors there.
    """
    if function.value is None and function.value_alone is not None:
        function = function._replace(value=function.value_alone())
    steps = _steps(function, top)

    def evaluate(theta: np.ndarray, start: object) -> Local:
        here = function.evaluate(theta, start)
        if not np.isfinite(here.value):
            return here
        if len(theta) <= MOST_BY_VALUES:
            gradient, hessian = _from_values(function, theta, here, steps)
        else:
            gradient, hessian = here.gradient, _from_gradients(function, theta, here, steps)
        return here._replace(gradient=gradient, hessian=hessian)

    return function._replace(evaluate=evaluate)


def checked_information(
    function: LikelihoodFunction, theta: np.ndarray, local: Local, inner: np.ndarray
) -> np.ndarray:
    """The information of some parameters, from values where these say something else.

    A fifth of a standard error away a likelihood falls as a quadratic does. Beside a standard
    deviation of 1e-6 second derivatives are differences of numbers of the size 1 / sd^2, and may be
    anything.

    Args:
        function: the likelihood.
        theta: where.
        local: the likelihood there.
        inner: the indices of the parameters that count; others stay as they are.
    """
    information = -local.hessian.copy()
    wrong = [i for i in inner.tolist() if not _falls_as_said(function, theta, local, i)]
    if len(wrong) == 0:
        return information

    evaluate = restricted(function.evaluate, theta, inner)
    alone = function._replace(
        evaluate=evaluate,
        value=lambda some, extra: function.value_at(with_some(theta, inner, some), extra),
    )
    top = Climb(theta[inner], evaluate(theta[inner], local.extra), 0, True)
    again = by_differences(alone, top).evaluate(top.theta, local.extra)
    if np.all(np.isfinite(again.hessian)):  # beside where numbers end values may be missing
        information[np.ix_(inner, inner)] = -again.hessian
    return information


def _falls_as_said(
    function: LikelihoodFunction, theta: np.ndarray, local: Local, index: int
) -> bool:
    curvature = -local.hessian[index, index]
    if not curvature > 0:
        return False
    move = np.zeros(len(theta))
    move[index] = STEP / np.sqrt(curvature)
    ends = [function.value_at(theta + side * move, local.extra) for side in (-1.0, 1.0)]
    return bool(abs((2 * local.value - sum(ends)) / STEP**2 - 1) < ALIKE)


def _steps(function: LikelihoodFunction, top: Climb) -> np.ndarray:
    """Along every coordinate the step over which the likelihood bends as in 0.2 standard errors.

    On a plateau there is none: then the longest that was seen to lead to numbers on both sides.
    """
    here, steps = top.local, np.ones(len(top.theta))
    for i in range(len(steps)):
        curvature = abs(here.hessian[i, i])
        steps[i] = STEP / np.sqrt(curvature) if 0 < curvature < np.inf else STEP
        too_long = np.inf
        for _ in range(ROUNDS):
            move = np.zeros(len(steps))
            move[i] = steps[i]
            ends = [function.value_at(top.theta + s * move, here.extra) for s in (-1, 1)]
            bend = abs(2 * here.value - sum(ends))
            if not np.isfinite(bend):
                too_long, steps[i] = steps[i], steps[i] / 4
                continue
            longer = steps[i] * float(np.clip(STEP / np.sqrt(max(bend, 1e-12)), 0.1, 10.0))
            if STEP**2 / 4 < bend < 4 * STEP**2 or longer >= too_long:
                break
            steps[i] = longer
    return steps


def _from_values(
    function: LikelihoodFunction, theta: np.ndarray, here: Local, steps: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and Hessian from values at steps along coordinates and pairs of them."""
    size = len(theta)
    moves = np.diag(steps)

    def value(move: np.ndarray) -> float:
        return function.value_at(theta + move, here.extra)

    up, down = (np.array([value(side * move) for move in moves]) for side in (1.0, -1.0))
    hessian = np.diag((up - 2 * here.value + down) / steps**2)
    for i in range(size):
        for j in range(i):
            corners = [
                a * b * value(a * moves[i] + b * moves[j]) for a in (1.0, -1.0) for b in (1.0, -1.0)
            ]
            hessian[i, j] = hessian[j, i] = sum(corners) / (4 * steps[i] * steps[j])
    return (up - down) / (2 * steps), hessian


def _from_gradients(
    function: LikelihoodFunction, theta: np.ndarray, here: Local, steps: np.ndarray
) -> np.ndarray:
    """The Hessian from gradients at steps along coordinates."""

    def gradient(move: np.ndarray) -> np.ndarray:
        return function.evaluate(theta + move, here.extra).gradient

    moves = np.diag(steps)
    rows = np.array([gradient(move) - gradient(-move) for move in moves]) / (2 * steps[:, None])
    return (rows + rows.T) / 2
