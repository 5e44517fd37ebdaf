"""Every reason to doubt a fit, in sentences, and what else one should know."""

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from marginax.inference.findings import Findings
from marginax.inference.information import unbounded
from marginax.inference.likelihood import Evidence
from marginax.inference.polish import believable, distance
from marginax.inference.refresh import Posterior
from marginax.natural import free_names
from marginax.problem import Problem
from marginax.result import Run

__all__ = ["doubts", "notes"]

FAR_APART = 3.0  # standard errors between particles at rest and an estimate by draws


def doubts(problem: Problem, ran: Run, found: Findings, at_edge: dict[int, str]) -> tuple[str, ...]:
    """What the summary has to say beside the numbers."""
    said = [found.interrupted] if found.interrupted else []
    if found.entangled:
        said.append(
            f"The log joint of {found.entangled} of {problem.num_groups} groups depends on the "
            "latent of another group where the particles are: the likelihood group by group is "
            "wrong. Fit without groups, `Problem(log_joint, ...)`."
        )
    if found.information is None:
        return (*said, *_of_the_particles(ran))
    said += at_edge.values()
    if found.polished is not None:
        best = found.polished.best
        if not best.settled and not at_edge:
            said.append(
                "The likelihood still rises slowly where Newton's method gave up: the maximum may "
                "be at infinity (separation, or a parameter the data say nothing about)."
            )
    elif found.climbed is not None and not found.climbed.settled:
        said.append(
            "The last Newton steps, from posterior draws, still moved by more than their Monte "
            "Carlo error."
        )
    if found.lower:
        values = ", ".join(f"{value:.2f}" for value in found.lower)
        said.append(
            f"Starts disagree: at other maxima the log likelihood is lower by {values}. The best "
            "is reported; there may be a better one still."
        )
    if found.lower_in_sample:
        values = ", ".join(f"{value:.2f}" for value in found.lower_in_sample)
        said.append(
            "Starts disagree: they were climbed with a sample of the groups, and at other maxima "
            f"its log likelihood is lower by {values}. All groups were climbed from the best; "
            "there may be a better one still."
        )
    apart = _ends_apart(ran, found)
    if apart:
        values = ", ".join(f"{value:.1f}" for value in apart)
        said.append(
            f"Starts disagree: the particles of {len(apart)} of {len(ran.statuses)} starts ended "
            f"{values} standard errors from the estimate."
        )
    names = free_names(problem)
    inside = [i for i in range(len(names)) if i not in at_edge]
    loose = unbounded(found.information[np.ix_(inside, inside)])
    flat = [names[i] for i, is_loose in zip(inside, loose, strict=True) if is_loose]
    if flat:
        said.append(
            f"The likelihood is flat in {', '.join(flat)}: the data do not determine "
            f"{'it' if len(flat) == 1 else 'them'}, or the maximum is at infinity (separation, "
            "or a variance of 0 on a log scale). The standard errors are unbounded."
        )
    if found.evidence is not None:
        said += _of_the_evidence(found.evidence, by_draws=found.climbed is not None)
    if found.draws is not None and not _have_mixed(found.draws):
        said.append(
            f"The posterior draws of the latents have not mixed (R-hat {found.draws.rhat:.2f}, "
            f"{found.draws.effective_draws:.0f} effective draws of the worst latent): the "
            "posterior may have several modes."
        )
    return tuple(said)


def notes(problem: Problem, ran: Run, found: Findings) -> tuple[str, ...]:
    """What is no reason to doubt the estimate, but should be known."""
    said = []
    lost = [s for s in ran.statuses if s in ("diverged", "nonfinite")]
    if lost and found.information is not None:
        said.append(
            f"{len(lost)} of {len(ran.statuses)} runs of the particles ended as "
            f"{' and '.join(sorted(set(lost)))}; Newton's method went on from their last good "
            "point."
        )
    if found.polished is not None:
        ends = jax.tree.map(lambda leaf: leaf[found.start], ran.theta)
        away = distance(np.asarray(ravel_pytree(ends)[0], float), found.polished.best)
        if away > 1.0:
            said.append(
                f"The particles came to rest {away:.1f} standard errors from the maximum: their "
                "cloud is not to be used for inference on its own."
            )
    empty = _without_data(problem, found.evidence)
    if empty:
        some = ", ".join(map(str, empty[:5])) + (", ..." if len(empty) > 5 else "")
        said.append(
            f"{len(empty)} of {problem.num_groups} groups ({some}) say nothing: their likelihood "
            "is 1 whatever their latents, as without data. These follow the prior."
        )
    if found.climbed is not None:
        said.append(
            "The likelihood could not be climbed itself; the estimate and its information come "
            f"from posterior draws (Louis), in {found.climbed.num_steps} steps."
        )
    if "interrupted" in ran.statuses:
        said.append(
            f"The particles were stopped after {ran.num_steps} steps, before they came to rest."
        )
    if found.draws is None and not found.interrupted:
        said.append(
            found.no_draws
            or "There are no posterior draws: refresh=False, or BlackJAX is not installed (`pip "
            "install 'marginax[blackjax]'`)."
        )
    return tuple(said)


def _have_mixed(draws: Posterior) -> bool:
    # Halves of short chains differ a little for want of draws, and the worst of very many more so.
    worst = 1.05 if draws.draws.shape[1] >= 100 else 1.1
    return draws.rhat <= worst and draws.effective_draws >= 100


def _of_the_particles(ran: Run) -> list[str]:
    said = []
    if not ran.converged:
        said.append(f"The particles did not come to rest: {ran.reason}")
    elif not ran.starts_agree:
        said.append(f"Starts disagree, and nothing tells which is best: {ran.reason}")
    if ran.cloud is not None and not ran.cloud.ok:
        said += ran.cloud.warnings
    said.append("There are no standard errors: the likelihood itself was not computed.")
    return said


def _ends_apart(ran: Run, found: Findings) -> list[float]:
    """How far starts ended from an estimate by draws, in standard errors, where that is far.

    With a likelihood its climbs tell the starts apart; without, only the particles can.
    """
    if found.climbed is None or found.information is None:
        return []
    ends = np.asarray(jax.vmap(lambda theta: ravel_pytree(theta)[0])(ran.theta), float)
    away = ends - found.theta[None]
    lengths = np.sqrt(np.abs(np.einsum("ip,pq,iq->i", away, found.information, away)))
    return [float(length) for length in lengths if not length < FAR_APART]


def _of_the_evidence(evidence: Evidence, *, by_draws: bool) -> list[str]:
    said = []
    if not believable(evidence):
        what = "The log likelihood" if by_draws else "Importance sampling"
        said.append(
            f"{what} cannot be believed (Pareto k {evidence.pareto_k:.2f}, which should be below "
            f"0.7; {evidence.effective_draws:.0f} effective draws): the posterior is far from "
            "Gaussian."
        )
    if np.isnan(evidence.pareto_k) and evidence.error > 0.05:
        said.append(
            f"Two quadrature rules differ by {evidence.error:.2g} in the log likelihood: the "
            "posteriors of the groups are far from Gaussian."
        )
    if evidence.undefined > 0:
        said.append(
            f"log_joint was NaN at {evidence.undefined:.1%} of the points of the integral, which "
            "counted as zero density. If that is not what NaN means there, the estimate is wrong."
        )
    return said


def _without_data(problem: Problem, evidence: Evidence | None) -> list[int]:
    if problem.num_groups is None or evidence is None or evidence.by_group is None:
        return []
    return [int(g) for g in np.flatnonzero(np.abs(evidence.by_group) < 1e-8)]
