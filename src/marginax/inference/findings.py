"""What is known of the estimate so far, as `fit` goes from stage to stage."""

from typing import NamedTuple

import numpy as np

from marginax.inference.likelihood import Evidence
from marginax.inference.louis import LouisClimb
from marginax.inference.newton import Climb
from marginax.inference.polish import Polished
from marginax.inference.refresh import Posterior

__all__ = ["Findings"]


class Findings(NamedTuple):
    """Filled in by the stages of `fit`.

    Attributes:
        theta: the estimate, flat and free.
        start: which start it came from.
        agreeing: how many starts led to it.
        lower: by how much the likelihood is lower at other maxima.
        lower_in_sample: the same for the likelihood of a sample of very many groups.
        polished: the climbs of the likelihood, if there were any.
        climbed: the climb by draws, if there was one.
        information: at theta.
        score_covariance: of the score's Monte Carlo error.
        evidence: the likelihood at theta.
        draws: from the posterior at theta.
        interrupted: what Ctrl-C left out, in a sentence.
        no_draws: why there are no posterior draws, in a sentence, if it is not by choice.
        entangled: how many groups depend on another group's latent, which none should.
    """

    theta: np.ndarray
    start: int
    agreeing: int = 1
    lower: tuple[float, ...] = ()
    lower_in_sample: tuple[float, ...] = ()
    polished: Polished | None = None
    climbed: LouisClimb | None = None
    information: np.ndarray | None = None
    score_covariance: np.ndarray | None = None
    evidence: Evidence | None = None
    draws: Posterior | None = None
    interrupted: str = ""
    no_draws: str = ""
    entangled: int = 0

    def at_top_of(self, climbs: list[Climb]) -> "Findings":
        """At the highest known top, with its curvature and nothing else."""
        settled = [found for found in climbs if found.settled]
        if not settled:
            return self
        best = max(settled, key=lambda found: found.local.value)
        return self._replace(
            theta=best.theta,
            information=-best.local.hessian,
            score_covariance=np.zeros_like(best.local.hessian),
        )

    def polished_by(self, polished: Polished | None) -> "Findings":
        """With what the climbs of the likelihood found."""
        if polished is None:
            return self
        return self._replace(
            theta=polished.best.theta,
            start=polished.start,
            agreeing=polished.agreeing,
            lower=polished.lower,
            polished=polished,
            information=-polished.best.local.hessian,
            score_covariance=polished.evidence.score_covariance,
            evidence=polished.evidence,
        )

    def without_information(self, coordinates: list[int]) -> "Findings":
        """With nothing known of these coordinates."""
        if self.information is None or not coordinates:
            return self
        information = self.information.copy()
        information[coordinates, :] = information[:, coordinates] = 0.0
        return self._replace(information=information)

    def climbed_by(self, climbed: LouisClimb, evidence: Evidence | None) -> "Findings":
        """With what posterior draws said instead."""
        return self._replace(
            theta=climbed.theta,
            polished=None,
            climbed=climbed,
            information=climbed.moments.information,
            score_covariance=climbed.moments.score_covariance,
            evidence=evidence,
            draws=climbed.posterior,
        )
