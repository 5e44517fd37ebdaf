"""The likelihood as a function of theta to be climbed, and what its evaluations hand on.

Every method of computing it makes one; climbs, profiles and starts know nothing else of it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array

from marginax.likelihood.mode_search import ModeSearch
from marginax.likelihood.newton import FIRST_RADIUS, Local
from marginax.likelihood.results import Likelihood
from marginax.model.structure import Structure

__all__ = ["FineStart", "LikelihoodFunction", "StructuredStart", "modes_of"]


class LikelihoodFunction(NamedTuple):
    """log p_theta(y) for flat theta on the reals, so that climbing it is written once.

    Attributes:
        start: what the first evaluation starts its mode search from, [blocks, size]; with several
            modes [modes, blocks, size].
        evaluate: `evaluate(theta, start) -> Local`.
        describe: `describe(theta, start) -> Likelihood`, the value that is reported.
        evaluate_finely: the same with a Hessian that takes longer and is free of the draws' noise,
            for the last steps; None where `evaluate` has no noise.
        adapt: `adapt(theta, start)` is the same likelihood with draws that suit theta; None where
            there are no draws.
        finer: `finer()` is the same likelihood by the next finer rule; None where there is none.
        other_modes: `other_modes(theta, start)` looks for modes beside those in start; None where
            there is nothing to look for.
        lengths: of theta, beyond which no step of a first climb goes; None where not known yet.
        value: `value(theta, start)`, without derivatives; None where `evaluate` is no dearer, for
            want of another program.
        value_alone: `value_alone()` makes a `value`, for those who want very many.
        rule_is_known: whether the rule is known to be fine enough where climbs begin.
        top: where the last steps begin, if `adapt` went there already; None for where it was asked.
        rough_gain: a gain in log likelihood that is not worth a step of a first climb.
        negligible: one that is not worth one of the last steps.
        first_radius: in standard errors, how long a first step may be.
        draw: `draw(theta, start, key, count)`, draws of the posterior, [count, size], without
            chains; None where there are none.
        structure: of one block of very many latents; None of others.
    """

    start: Array
    evaluate: Callable[[np.ndarray, Any], Local]
    describe: Callable[[np.ndarray, Any], Likelihood]
    evaluate_finely: Callable[[np.ndarray, Any], Local] | None = None
    adapt: "Callable[[np.ndarray, Any], LikelihoodFunction] | None" = None
    finer: "Callable[[], LikelihoodFunction] | None" = None
    other_modes: Callable[[np.ndarray, Any], ModeSearch] | None = None
    lengths: np.ndarray | None = None
    value: Callable[[np.ndarray, Any], float] | None = None
    value_alone: "Callable[[], Callable[[np.ndarray, Any], float]] | None" = None
    rule_is_known: bool = False
    top: np.ndarray | None = None
    rough_gain: float = 1e-9
    negligible: float = 1e-9
    first_radius: float = FIRST_RADIUS
    draw: "Callable[[np.ndarray, Any, Any, int], np.ndarray] | None" = None
    structure: Structure | None = None

    def value_at(self, theta: np.ndarray, start: Any) -> float:
        """The value by whatever is compiled and cheapest."""
        return self.evaluate(theta, start).value if self.value is None else self.value(theta, start)


class FineStart(NamedTuple):
    """What an evaluation with a Hessian that takes long hands on to the next.

    Attributes:
        modes: as `LikelihoodFunction.start`.
        curvature: the Hessian and where it was taken, to be used again nearby.
    """

    modes: Array
    curvature: Any


class StructuredStart(NamedTuple):
    """What an evaluation of very many dependent latents hands on to the next.

    Attributes:
        modes: of the latents, [1, n], where searches begin.
        theta: where it was.
        gradient: there.
        hessian: about.
        gaussian: nearest to the posterior; None before it is asked for.
        exact: a theta and the Hessian there by differences; None likewise.
        num_draws: by which theta is climbed; 0 without draws.
    """

    modes: Array
    theta: np.ndarray
    gradient: np.ndarray
    hessian: np.ndarray
    gaussian: Any = None
    exact: tuple[np.ndarray, np.ndarray] | None = None
    num_draws: int = 0


def modes_of(extra: Any) -> Any:
    """The modes in what an evaluation handed on."""
    return extra.modes if isinstance(extra, FineStart | StructuredStart) else extra
