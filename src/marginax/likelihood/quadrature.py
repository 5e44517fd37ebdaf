r"""log p_theta(y) of a grouped problem by quadrature, group by group.

    log p_theta(y_g) = log sum_m a_m sum_k w_k exp(l_g(theta, x_mk)) / q_g(x_mk),
    x_mk = m_m + R_m z_k

with the modes m_m of the group's posterior and R_m R_m^T the inverse of its curvature there (see
`proposals`); with one mode and Gauss-Hermite nodes z_k that is adaptive Gauss-Hermite quadrature.
Nodes do not move in derivatives with respect to theta, which are then those of the integral.

Rules form a ladder, and the one that is used is checked by the next: value and gradient of both
must agree. From the second on they are made for posteriors that are far from Gaussian:

    z = sinh(b t) / b,   t evenly spaced

is nearly even around a mode and reaches thousands of its widths out, so that long tails, and a
narrow peak in a wide shoulder, are seen.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from marginax._core.processes import whole
from marginax._core.programs import KEPT, ById, program
from marginax.likelihood.blocks import Blocks, as_blocks, chunk_of, finite_values
from marginax.likelihood.functions import LikelihoodFunction
from marginax.likelihood.mode_search import mode_search
from marginax.likelihood.newton import Local
from marginax.likelihood.proposals import (
    Proposal,
    as_modes,
    gaussian_log_density,
    log_densities_of,
    log_standard_t,
    points_of,
    proposals_by_chunk,
)
from marginax.likelihood.results import QuadratureLikelihood
from marginax.model.problem import Problem
from marginax.typing import Data

__all__ = [
    "GroupMoments",
    "MOST_DIMENSIONS",
    "ORDERS",
    "Rule",
    "far_reaching",
    "nodes_of",
    "quadrature",
    "quadrature_likelihood",
    "rules",
]

MOST_DIMENSIONS = 3  # dimensions of a group's latent; beyond it the nodes are too many
ORDERS = {1: 25, 2: 15, 3: 11}  # Gauss-Hermite nodes per dimension
BEND = 0.5  # b above: evenly spaced nodes near the mode, e^(b t) further out
# The finer rules by dimension: Gauss-Hermite orders, or spacing and reach of t.
FINER: dict[int, tuple[int | tuple[float, float], ...]] = {
    1: ((0.25, 16.0), (0.0625, 16.0), (0.03125, 16.0)),
    2: ((0.4, 10.4), (0.2, 10.4), (0.1, 10.4)),
    3: (19, (0.5, 8.0), (0.35, 8.4)),
}
# Several modes share the space between them by a t of so many degrees of freedom; and a narrow one
# within a wide one, between whose nodes it may lie, has its own place all but to itself.
DEGREES, SHARPNESS = 7.0, 5.0
CLOSE = 0.125  # nodes closer than this are weighed by Simpson's rule
MOST_NODES = 2**28  # of all groups together: beyond it no finer rule is tried


class Rule(NamedTuple):
    """A product rule for expectations under the standard Gaussian.

    Attributes:
        nodes: [K, size].
        log_weights: of every node; their exponentials add up to 1, nearly.
        words: which rule, for the summary.
        num_nodes: per dimension.
        log_standard: the log density by which several modes share a point among them.
        sharpness: how much more of it a narrow mode gets.
    """

    nodes: np.ndarray
    log_weights: np.ndarray
    words: str
    num_nodes: int
    log_standard: Callable[[Array], Array] = gaussian_log_density
    sharpness: float = 1.0


class GroupMoments(NamedTuple):
    """What the quadrature knows of the groups' posteriors.

    Attributes:
        log_marginal: log p_theta(y_g), one per group.
        mean: E[x_g | y_g], on the reals.
        variance: Var[x_g | y_g], coordinate by coordinate.
        undefined: the share of the Gaussians at the modes where the log density is NaN.
    """

    log_marginal: Float[Array, " groups"]
    mean: Float[Array, "groups p"]
    variance: Float[Array, "groups p"]
    undefined: Any


@lru_cache
def gauss_hermite(size: int, order: int) -> Rule:
    """Exact for polynomials beside a Gaussian."""
    xi, w = np.polynomial.hermite.hermgauss(order)
    words = f"adaptive Gauss-Hermite quadrature, {order} nodes per dimension"
    return _product(size, math.sqrt(2) * xi, np.log(w) - 0.5 * math.log(math.pi), words)


@lru_cache
def far_reaching(size: int, spacing: float, reach: float) -> Rule:
    """Evenly spaced nodes in t, for densities with long tails or wide shoulders.

    The trapezium rule is all but exact for smooth ones. With nodes this close Simpson's is so too,
    and for it a kink at the mode, as a Laplace prior has, lies where two parabolas meet and does no
    harm.
    """
    sides = 2 * round(reach / spacing / 2)  # even, so that the mode is an end of parabolas
    t = spacing * np.arange(-sides, sides + 1)
    simpson = np.where(np.arange(len(t)) % 2 == 0, 2 / 3, 4 / 3) if spacing <= CLOSE else 1.0
    z = np.sinh(BEND * t) / BEND
    log_weights = np.log(simpson * spacing * np.cosh(BEND * t))
    log_weights += -0.5 * z**2 - 0.5 * math.log(2 * math.pi)
    words = f"adaptive quadrature far into the tails, {len(t)} nodes per dimension"
    rule = _product(size, z, log_weights, words)
    return rule._replace(log_standard=_by_distance, sharpness=SHARPNESS)


def _by_distance(z: Float[Array, "*n p"]) -> Float[Array, "*n"]:
    """A t's log density, which falls as slowly as nodes get further apart.

    Of two Gaussians ten widths apart one takes over from the other within a tenth of a width.
    """
    return log_standard_t(z, jnp.asarray(DEGREES, z.dtype))


def _product(size: int, z: np.ndarray, log_weights: np.ndarray, words: str) -> Rule:
    grids = np.meshgrid(*[z] * size, indexing="ij")
    logs = np.meshgrid(*[log_weights] * size, indexing="ij")
    nodes = np.stack([grid.ravel() for grid in grids], axis=1)
    return Rule(nodes, np.sum([log.ravel() for log in logs], axis=0), words, len(z))


def rules(size: int, order: int | None = None) -> tuple[Rule, ...]:
    """The ladder for groups of this many latents; its last only checks the one before it.

    Args:
        size: of a group's latent.
        order: Gauss-Hermite nodes of the first rule, if not the usual number.
    """
    finer = (
        gauss_hermite(size, one) if isinstance(one, int) else far_reaching(size, *one)
        for one in FINER[size]
    )
    return (gauss_hermite(size, order or ORDERS[size]), *finer)


def quadrature(
    blocks: Blocks, theta: Array, proposal: Proposal, data: Data, rule: Rule
) -> GroupMoments:
    """The groups' log marginal likelihoods and posterior moments, by nodes around their modes."""
    proposal = jax.lax.stop_gradient(proposal)
    points, log_weights, log_share = nodes_of(proposal, rule)
    weights = jnp.tile(jnp.asarray(rule.log_weights, points.dtype), len(proposal.log_share))
    values, undefined = finite_values(
        lambda x: blocks.log_densities(theta, x, data), points, proposal.at.mode[0], log_weights
    )
    terms = values + log_weights
    # Beside a part without a share, or too narrow for numbers, there is nothing to add.
    terms = jnp.where(jnp.isneginf(log_share) | jnp.isnan(terms), -jnp.inf, terms)
    total = jax.nn.logsumexp(terms, axis=0)
    share = jnp.exp(terms - total[None])
    mean = jnp.einsum("kb,kbp->bp", share, points)
    variance = jnp.einsum("kb,kbp->bp", share, (points - mean[None]) ** 2)
    # Far out, where a posterior has nothing, a density may well be NaN (0 times infinity).
    beside = jnp.where(undefined, jnp.exp(weights[:, None] + log_share), 0)
    return GroupMoments(total, mean, variance, jnp.sum(beside, axis=0))


def nodes_of(
    proposal: Proposal, rule: Rule
) -> tuple[Float[Array, "n blocks p"], Float[Array, "n blocks"], Float[Array, "n blocks"]]:
    """The nodes of a rule around every mode, their log weights, and the modes' log shares.

    The integral of a density is the sum of its values at the nodes times their weights.
    """
    dtype = proposal.at.mode.dtype
    nodes, log_weights = jnp.asarray(rule.nodes, dtype), jnp.asarray(rule.log_weights, dtype)
    log_q, log_share = log_densities_of(
        proposal, nodes, rule.log_standard, sharpness=rule.sharpness
    )
    log_weights = log_weights - gaussian_log_density(nodes) + rule.log_standard(nodes)
    weights = jnp.tile(log_weights, len(proposal.log_share))
    return points_of(proposal, nodes), log_share - log_q + weights[:, None], log_share


def quadrature_likelihood(
    problem: Problem, mesh: Mesh | None = None, *, order: int | None = None, rung: int = 0
) -> LikelihoodFunction:
    """Exact up to the error of the rule, which a finer one tells.

    Args:
        problem: grouped, in double precision.
        mesh: of devices that share the groups.
        order: Gauss-Hermite nodes per dimension of the first rule, if not the usual number.
        rung: which rule of the ladder.
    """
    blocks = as_blocks(problem, mesh)
    num_blocks, size = blocks.start.shape
    ladder = rules(size, order)
    rule, check = ladder[rung], ladder[rung + 1]
    local, two_rules, total = _compiled(blocks.bare, order, rung)
    each_chunk = proposals_by_chunk(blocks)

    def evaluate(theta: np.ndarray, start: Array) -> Local:
        modes = as_modes(start)
        parts, onwards = [], []
        for rows, proposal, further in each_chunk(theta, modes, len(modes) * len(rule.nodes)):
            parts.append(local(theta, proposal, chunk_of(blocks, rows)))
            onwards.append(further)
        values, gradients, hessians = zip(*jax.device_get(parts), strict=True)
        return Local(
            float(np.sum(values)),
            np.sum(gradients, axis=0),
            np.sum(hessians, axis=0),
            onwards[0] if len(onwards) == 1 else jnp.concatenate(onwards, axis=1),
        )

    def by_chunks(program: Any, theta: np.ndarray, modes: Array, by: Rule) -> list[Any]:
        return [
            program(theta, proposal, chunk_of(blocks, rows))
            for rows, proposal, _ in each_chunk(theta, modes, len(modes) * len(by.nodes))
        ]

    def value(theta: np.ndarray, start: Array) -> float:
        return float(np.sum(jax.device_get(by_chunks(total, theta, as_modes(start), rule))))

    described: list[tuple[np.ndarray, Array, QuadratureLikelihood]] = []  # the last one

    def describe(theta: np.ndarray, start: Array) -> QuadratureLikelihood:
        # Asked for where a climb ended, and again for the result.
        if described and described[0][1] is start and np.array_equal(described[0][0], theta):
            return described[0][2]
        found = _described(theta, start)
        described[:] = [(theta.copy(), start, found)]
        return found

    def _described(theta: np.ndarray, start: Array) -> QuadratureLikelihood:
        modes = as_modes(start)
        by_chunk = by_chunks(two_rules, theta, modes, check)
        score_errors = np.sum([np.asarray(scores) for *_, scores in by_chunk], axis=0)
        coarse, fine = jax.tree.map(
            lambda *parts: np.concatenate([whole(part) for part in parts]),
            *[both for *both, _ in by_chunk],
        )
        difference = np.abs(np.asarray(fine.log_marginal - coarse.log_marginal))
        return QuadratureLikelihood(
            log_likelihood=float(np.sum(fine.log_marginal)),
            error=float(np.sum(difference)),
            by_group=np.asarray(fine.log_marginal),
            mean=np.asarray(fine.mean),
            sd=np.sqrt(np.asarray(fine.variance)),
            undefined=float(np.mean(fine.undefined)),
            num_nodes=check.num_nodes,
            rule=check.words,
            score_error=score_errors,
            num_modes=len(modes),
        )

    def finer() -> LikelihoodFunction:
        return quadrature_likelihood(problem, mesh, order=order, rung=rung + 1)

    has_finer = rung + 2 < len(ladder) and num_blocks * len(ladder[rung + 2].nodes) < MOST_NODES
    return LikelihoodFunction(
        blocks.start,
        evaluate,
        describe,
        finer=finer if has_finer else None,
        other_modes=mode_search(blocks),
        value_alone=lambda: value,
    )


@lru_cache(KEPT)
def _compiled(bare: ById, order: int | None, rung: int) -> tuple[Any, Any, Any]:
    """The likelihood with its derivatives, the likelihood by two rules, and its value alone."""
    blocks = bare.value

    def total(theta: Array, proposal: Proposal, data: Any, rule: Rule) -> Any:
        moments = quadrature(blocks, theta, proposal, data, rule)
        return jnp.sum(moments.log_marginal), moments

    def rule_of(rung: int, proposal: Proposal) -> Rule:
        return rules(proposal.at.mode.shape[-1], order)[rung]

    @program(bare, order, rung)
    def local(theta: Array, proposal: Proposal, data: Any) -> Any:
        rule = rule_of(rung, proposal)

        def gradient(theta: Array) -> Any:  # once traced for value, gradient and Hessian
            (value, _), slope = jax.value_and_grad(total, has_aux=True)(theta, proposal, data, rule)
            return slope, (value, slope)

        hessian, (value, slope) = jax.jacfwd(gradient, has_aux=True)(theta)
        return value, slope, hessian

    @program(bare, order, rung)
    def two_rules(theta: Array, proposal: Proposal, data: Any) -> Any:
        scores, moments = zip(
            *(
                jax.grad(total, has_aux=True)(theta, proposal, data, rule_of(k, proposal))
                for k in (rung, rung + 1)
            ),
            strict=True,
        )
        return *moments, scores[1] - scores[0]

    @program(bare, order, rung)
    def value(theta: Array, proposal: Proposal, data: Any) -> Any:
        return total(theta, proposal, data, rule_of(rung, proposal))[0]

    return local, two_rules, value
