"""What is known of the estimate so far, as `fit` goes from stage to stage."""

from typing import NamedTuple

import numpy as np

from marginax.likelihood.climbs import Maximum
from marginax.likelihood.from_draws import LouisClimb
from marginax.likelihood.newton import Climb
from marginax.likelihood.posterior import Posterior
from marginax.likelihood.results import (
    ImportanceLikelihood,
    Likelihood,
    StructuredLikelihood,
)

__all__ = ["FitState"]

NOISE = (
    "Standard errors could not be computed: the information from posterior draws (Louis) has a "
    "Monte Carlo error of {:.0%} of itself along its weakest direction. The estimate is no better "
    "known than that."
)


class FitState(NamedTuple):
    """Filled in by the stages of `fit`.

    Attributes:
        theta: the estimate, flat, on the reals.
        start: which start it came from.
        agreeing: how many starts led to it.
        lower: by how much the likelihood is lower at other maxima.
        lower_in_sample: the same for the likelihood of a sample of very many groups.
        maximum: of the likelihood, if it was climbed.
        climbed: the climb by posterior draws, if there was one.
        information: at theta.
        score_covariance: of the score's Monte Carlo error.
        likelihood: at theta.
        draws: from the posterior at theta.
        interrupted: what Ctrl-C left out, in a sentence.
        no_draws: why there are no posterior draws, in a sentence, if it is not by choice.
        interacting_groups: how many groups depend on another group's latent, which none should.
        boundaries: coordinates at the boundary of what is allowed, with a sentence each.
        rises: whether the likelihood rises on and on from where Newton's method gave up.
        blind_to_sign: negative parameters whose sign the likelihood does not see.
        no_errors: why there are no standard errors, in a sentence, if they could not be computed.
    """

    theta: np.ndarray
    start: int
    agreeing: int = 1
    lower: tuple[float, ...] = ()
    lower_in_sample: tuple[float, ...] = ()
    maximum: Maximum | None = None
    climbed: LouisClimb | None = None
    information: np.ndarray | None = None
    score_covariance: np.ndarray | None = None
    likelihood: Likelihood | None = None
    draws: Posterior | None = None
    interrupted: str = ""
    no_draws: str = ""
    interacting_groups: int = 0
    boundaries: dict[int, str] = {}  # noqa: RUF012, never changed in place
    rises: bool = False
    blind_to_sign: tuple[str, ...] = ()
    no_errors: str = ""

    def at_top_of(self, climbs: list[Climb]) -> "FitState":
        """At the highest known top, with its curvature and nothing else."""
        settled = [one for one in climbs if one.settled]
        if not settled:
            return self
        best = max(settled, key=lambda one: one.local.value)
        return self._replace(
            theta=best.theta,
            information=-best.local.hessian,
            score_covariance=np.zeros_like(best.local.hessian),
        )

    def at_maximum(self, maximum: Maximum | None) -> "FitState":
        """With what the climbs of the likelihood found."""
        if maximum is None:
            return self
        value, hessian = maximum.likelihood, maximum.best.local.hessian
        noise = np.zeros_like(hessian)
        if isinstance(value, ImportanceLikelihood | StructuredLikelihood):
            noise = value.score_covariance
        return self._replace(
            theta=maximum.best.theta,
            start=maximum.start,
            agreeing=maximum.agreeing,
            lower=maximum.lower,
            maximum=maximum,
            information=-hessian,
            score_covariance=noise,
            likelihood=value,
        )

    def by_draws(self, climbed: LouisClimb, likelihood: Likelihood | None) -> "FitState":
        """With what posterior draws said instead."""
        return self._replace(
            theta=climbed.theta,
            maximum=None,
            climbed=climbed,
            no_errors="" if climbed.moments.is_known else NOISE.format(climbed.moments.noise),
            information=climbed.moments.information if climbed.moments.is_known else None,
            score_covariance=climbed.moments.score_covariance,
            likelihood=likelihood,
            draws=climbed.posterior,
        )

    def without_information(self, coordinates: list[int]) -> "FitState":
        """With nothing known of these coordinates."""
        if self.information is None or not coordinates:
            return self
        information = self.information.copy()
        information[coordinates, :] = information[:, coordinates] = 0.0
        return self._replace(information=information)

    @property
    def has_settled(self) -> bool | None:
        """Whether the last steps came to rest; None if there were none but the particles'."""
        if self.maximum is not None:
            return self.maximum.best.settled or bool(self.boundaries)
        return None if self.climbed is None else self.climbed.settled
