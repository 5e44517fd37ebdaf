"""What a fit warns of, in sentences, and what else one should know; whether it has converged.

A warning is a reason to doubt the estimate or its standard errors. A note is not: that a variance
is estimated as 0, or that a group has no data, is something found and no failure.
"""

import numpy as np

from marginax.fitting.fit_state import FitState
from marginax.fitting.stages import ends_of
from marginax.fitting.uncertainty import unbounded
from marginax.likelihood.climbs import distance
from marginax.likelihood.posterior import Posterior, can_draw
from marginax.likelihood.results import Likelihood
from marginax.model.parameter_table import unconstrained_names
from marginax.model.problem import Problem
from marginax.running.result import Run

__all__ = ["has_converged", "notes_on", "notes_without_particles", "warnings_of"]

NOT_ASKED = "There are no posterior draws: draw_posterior=False."
NOT_INSTALLED = (
    "There are no posterior draws: BlackJAX is not installed (`pip install 'marginax[blackjax]'`)."
)
FAR_APART = 3.0  # standard errors between particles at rest, where there is no likelihood


def has_converged(ran: Run | None, state: FitState) -> bool:
    """Whether the optimisation came to its end: Newton's steps, or else the particles."""
    if state.interrupted:
        return False
    settled = state.has_settled
    if settled is None:
        return ran is not None and ran.converged and ran.starts_agree
    return settled


def warnings_of(problem: Problem, ran: Run | None, state: FitState) -> tuple[str, ...]:
    """Every reason to doubt the estimate or its standard errors; none is good.

    Args:
        problem: what was fitted.
        ran: the particles; None where the likelihood alone was climbed.
        state: with the estimate.
    """
    said = [state.interrupted] if state.interrupted else []
    if state.interacting_groups:
        said.append(
            f"The log joint of {state.interacting_groups} of {problem.num_groups} groups depends "
            "on the latent of another group where the particles are: the likelihood group by group "
            "is wrong. Fit without groups, `Problem(log_joint, ...)`."
        )
    if state.information is None and ran is not None:
        said += _of_the_particles(ran, state)
    if state.information is None:
        return tuple(said + _of_the_posterior(state))
    said += _of_the_climb(state)
    said += _of_the_starts(ran, state)
    said += _of_the_information(problem, state.information, state.boundaries)
    if state.blind_to_sign:
        some = ", ".join(state.blind_to_sign)
        said.append(
            f"The likelihood is the same for the other sign of {some}, which is negative here: "
            "constrain it (`theta_transforms={...: transforms.positive}`), as for a standard "
            "deviation."
        )
    return tuple(said + _of_the_posterior(state))


def notes_on(problem: Problem, ran: Run, state: FitState) -> tuple[str, ...]:
    """What is no reason to doubt the estimate, but should be known."""
    said = notes_without_particles(problem, state)
    lost = [s for s in ran.statuses if s in ("diverged", "nonfinite")]
    if lost and state.information is not None:
        said.append(
            f"{len(lost)} of {len(ran.statuses)} runs of the particles ended as "
            f"{' and '.join(sorted(set(lost)))}; Newton's method went on from their last good "
            "point."
        )
    said += _of_the_cloud(ran, state)
    if state.climbed is not None:
        said.append(
            "The likelihood could not be climbed itself; the estimate and its information come "
            f"from posterior draws (Louis), in {state.climbed.num_steps} steps."
        )
    if "interrupted" in ran.statuses:
        said.append(
            f"The particles were stopped after {ran.num_steps} steps, before they came to rest."
        )
    if state.draws is None and not state.interrupted:
        said.append(
            state.no_draws or (NOT_ASKED if can_draw(problem.latent_size) else NOT_INSTALLED)
        )
    return tuple(said)


def notes_without_particles(problem: Problem, state: FitState) -> list[str]:
    """Of these, what is known from the problem and the likelihood alone."""
    said = [*problem.notes, *state.boundaries.values()]
    empty = _without_data(problem, state.likelihood)
    if empty:
        some = ", ".join(map(str, empty[:5])) + (", ..." if len(empty) > 5 else "")
        said.append(
            f"{len(empty)} of {problem.num_groups} groups ({some}) say nothing: their likelihood "
            "is 1 whatever their latents, as without data. These follow the prior."
        )
    return said


def _have_mixed(draws: Posterior) -> bool:
    num_chains, length = draws.draws.shape[:2]
    if draws.effective_draws < min(100, num_chains * length / 10):
        return False
    return draws.rhat <= (1.05 if length >= 100 else 1.1) or draws.rhat <= _by_chance(draws)


def _by_chance(draws: Posterior) -> float:
    """What R-hat of the worst of so many latents may be though all have mixed.

    Halves of short chains differ for want of draws, and the worst of very many by much: means over
    halves of independent draws vary by F / n of what the draws do, with F's distribution. Draws a
    third as good as independent ones are let pass.
    """
    from scipy.special import fdtri  # slow to import, and only needed here

    num_chains, length = draws.draws.shape[:2]
    halves, half = 2 * num_chains, length // 2
    rarely = 0.01 / draws.draws[0, 0].size
    largest = fdtri(halves - 1, halves * (half - 1), 1 - rarely)
    return float(np.sqrt((half - 1) / half + 3 * largest / half))


def _of_the_posterior(state: FitState) -> list[str]:
    """What the integral over the latents, and draws of them, give reason to doubt."""
    said = [] if state.likelihood is None else state.likelihood.warnings()
    if state.draws is not None and not _have_mixed(state.draws):
        said.append(_of_the_draws(state.draws))
    return said


def _of_the_draws(draws: Posterior) -> str:
    sentence = (
        f"The posterior draws of the latents have not mixed (R-hat {draws.rhat:.2f}, "
        f"{draws.effective_draws:.0f} effective draws of the worst latent): "
    )
    if draws.num_stuck:
        chains = draws.draws.shape[0] * draws.draws.shape[2]
        return sentence + (
            f"{draws.num_stuck} of {chains} chains hardly moved, so that R-hat says nothing."
        )
    return sentence + "chains ended in different places, and intervals of latents are not right."


def _of_the_particles(ran: Run, state: FitState) -> list[str]:
    said = []
    if not ran.converged:
        said.append(f"The particles did not come to rest: {ran.reason}")
    elif not ran.starts_agree:
        said.append(f"Starts disagree, and nothing tells which is best: {ran.reason}")
    if ran.cloud_check is not None:
        said += ran.cloud_check.warnings
    said.append(
        state.no_errors or "There are no standard errors: the likelihood itself was not computed."
    )
    return said


def _of_the_climb(state: FitState) -> list[str]:
    if state.has_settled is not False:
        return []
    if state.climbed is not None:
        return [
            "The last Newton steps, from posterior draws, still moved by more than their Monte "
            "Carlo error."
        ]
    if state.rises:
        return [
            "The likelihood still rises where Newton's method gave up, and on and on in that "
            "direction: the maximum is at infinity (separation, or a parameter the data say "
            "nothing about)."
        ]
    promised = 0.0 if state.maximum is None else state.maximum.best.promised
    return [
        "Newton's method found no higher point though its quadratic promises "
        f"{promised:.2g} more in the log likelihood: this is not known to be the maximum."
    ]


def _of_the_starts(ran: Run | None, state: FitState) -> list[str]:
    said = []
    if state.lower:
        values = ", ".join(f"{value:.2f}" for value in state.lower)
        said.append(
            f"Starts disagree: at other maxima the log likelihood is lower by {values}. The best "
            "is reported; there may be a better one still."
        )
    if state.lower_in_sample:
        values = ", ".join(f"{value:.2f}" for value in state.lower_in_sample)
        said.append(
            "Starts disagree: they were climbed with a sample of the groups, and at other maxima "
            f"its log likelihood is lower by {values}. All groups were climbed from the best; "
            "there may be a better one still."
        )
    apart = _ends_apart(ran, state)
    if ran is not None and apart > FAR_APART:
        said.append(
            f"Starts disagree: the particles of {len(ran.statuses)} starts ended up to {apart:.1f} "
            "standard errors from each other, and nothing tells which is best."
        )
    return said


def _of_the_information(
    problem: Problem, information: np.ndarray, boundaries: dict[int, str]
) -> list[str]:
    names = unconstrained_names(problem)
    inside = [i for i in range(len(names)) if i not in boundaries]
    loose = unbounded(information[np.ix_(inside, inside)])
    flat = [names[i] for i, is_loose in zip(inside, loose, strict=True) if is_loose]
    if not flat:
        return []
    return [
        f"The likelihood is flat in {', '.join(flat)}: the data do not determine "
        f"{'it' if len(flat) == 1 else 'them'}, or the maximum is at infinity (separation, or a "
        "variance of 0 on a log scale). The standard errors are unbounded."
    ]


def _of_the_cloud(ran: Run, state: FitState) -> list[str]:
    ends = ends_of(ran)
    if state.maximum is not None:
        where, away = "maximum", distance(ends[state.start], state.maximum.best)
    elif state.climbed is not None and state.information is not None:
        where, away = "estimate by draws", _lengths(ends - state.theta, state.information).min()
    else:
        return []
    if not away > 1.0:
        return []
    return [
        f"The particles came to rest {away:.1f} standard errors from the {where}: their cloud is "
        "not to be used for inference on its own."
    ]


def _ends_apart(ran: Run | None, state: FitState) -> float:
    """How far ends of the particles are from each other, in standard errors, with draws alone.

    With a likelihood its climbs tell the starts apart; without, only the particles can.
    """
    if ran is None or state.climbed is None or state.information is None:
        return 0.0
    ends = ends_of(ran)
    return float(max(_lengths(ends - one, state.information).max() for one in ends))


def _lengths(away: np.ndarray, information: np.ndarray) -> np.ndarray:
    """Of rows, in standard errors."""
    return np.asarray(np.sqrt(np.abs(np.einsum("ip,pq,iq->i", away, information, away))))


def _without_data(problem: Problem, likelihood: Likelihood | None) -> list[int]:
    if problem.num_groups is None or likelihood is None or likelihood.by_group is None:
        return []
    return [int(g) for g in np.flatnonzero(np.abs(likelihood.by_group) < 1e-8)]
