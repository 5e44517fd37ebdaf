"""Which method computes the marginal likelihood of a problem.

To add one: a file beside `quadrature` that returns a `LikelihoodFunction`, a type for its value in
`results`, and its line in both functions here. `fit` asks here alone; tables, warnings and saved
files follow the type.

    up to 3 latents in a group           quadrature
    more than 150 in one sparse block    by the factors of its curvature (`structured`); fewer too,
                                         if the problem names a structure
    up to 400 latents in a block         importance sampling
    other                                none: posterior draws give its derivatives (`from_draws`)
"""

import numpy as np
from jax.sharding import Mesh

from marginax.likelihood.functions import LikelihoodFunction
from marginax.likelihood.importance import MOST_LATENTS, importance_likelihood
from marginax.likelihood.newton import Climb
from marginax.likelihood.quadrature import MOST_DIMENSIONS, ORDERS, quadrature_likelihood
from marginax.likelihood.results import QuadratureLikelihood
from marginax.likelihood.structured import structured_likelihood
from marginax.model.problem import Problem

__all__ = ["choose_likelihood", "likelihood_of_all"]

FEW_LATENTS = 150  # in one block, up to which its dense curvature is as good
NEGLIGIBLE = 0.01  # standard errors by which fewer nodes may move the estimate


def choose_likelihood(
    problem: Problem, theta: np.ndarray, mesh: Mesh | None = None
) -> LikelihoodFunction | None:
    """The likelihood as a function, or None where the latents are too many for it.

    Args:
        problem: in double precision.
        theta: flat, on the reals; where it will first be evaluated.
        mesh: over whose devices the groups are spread, if any.
    """
    size = problem.latent_size
    if problem.structure is not None:
        asked_for = structured_likelihood(problem, theta)
        if isinstance(asked_for, str):
            raise ValueError(f"structure is {problem.structure!r}, but there is none. {asked_for}")
        return asked_for
    if problem.num_groups is not None and size <= MOST_DIMENSIONS:
        return quadrature_likelihood(problem, mesh)
    if problem.num_groups is None and mesh is None and size > FEW_LATENTS:
        found = structured_likelihood(problem, theta)
        if isinstance(found, LikelihoodFunction) and (size > MOST_LATENTS or _is_sparse(found)):
            return found
    return importance_likelihood(problem, theta, mesh) if size <= MOST_LATENTS else None


def _is_sparse(function: LikelihoodFunction) -> bool:
    structure = function.structure
    return structure is not None and structure.pattern.nonzeros <= structure.size**2 / 4


def likelihood_of_all(
    problem: Problem, sample: Problem, top: Climb, mesh: Mesh | None = None
) -> LikelihoodFunction | None:
    """The likelihood of all groups, climbed by as few nodes as a sample of the groups allows.

    Args:
        problem: in double precision.
        sample: the problem of some of its groups, likewise.
        top: of the sample's likelihood with the usual nodes.
        mesh: over whose devices the groups are spread, if any.
    """
    size = problem.latent_size
    if size > MOST_DIMENSIONS:
        return choose_likelihood(problem, top.theta, mesh)
    covariance = np.linalg.pinv(-top.local.hessian)
    errors = np.sqrt(np.abs(np.diag(covariance)) * sample.num_groups / problem.num_groups)
    usual = quadrature_likelihood(problem, mesh)
    there = quadrature_likelihood(sample).describe(top.theta, top.local.extra)
    if isinstance(there, QuadratureLikelihood) and not there.is_accurate(top.local.hessian):
        return usual
    for order in range(5, ORDERS[size], 2):
        few_there = quadrature_likelihood(sample, order=order).evaluate(top.theta, top.local.extra)
        moved = covariance @ (few_there.gradient - top.local.gradient)
        if np.all(np.abs(moved) < NEGLIGIBLE * errors):
            # Few nodes place the maximum; what the likelihood is there, all of them say, once: a
            # small error in every group is a large one in the sum of very many.
            few = quadrature_likelihood(problem, mesh, order=order)
            return few._replace(describe=usual.describe, rule_is_known=True)
    return usual
