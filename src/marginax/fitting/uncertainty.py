"""How certain an estimate is: covariances from the information, and the likelihood-ratio test."""

from typing import Any, NamedTuple

import jax
import numpy as np

from marginax.likelihood.information import scaled_eigen
from marginax.model.parameter_table import unconstrained_names
from marginax.model.problem import Problem
from marginax.model.transforms import Transform, identity
from marginax.model.transforms.trees import is_transform

__all__ = [
    "LikelihoodRatio",
    "delta_method",
    "inverse_information",
    "likelihood_ratio",
    "unbounded",
]

NO_INFORMATION = 1e-13  # an eigenvalue, where 1 is what a coordinate says alone


def inverse_information(information: np.ndarray, boundaries: tuple[int, ...]) -> np.ndarray:
    """The covariance of theta on the reals.

    Args:
        information: minus the Hessian of the log likelihood.
        boundaries: coordinates at a boundary. They have no standard error (NaN), and the others'
            are with these fixed.

    Returns:
        The covariance; infinite on the diagonal, and 0 beside it, where a direction has no
        information.
    """
    size = len(information)
    inside = [i for i in range(size) if i not in boundaries]
    covariance = np.zeros((size, size))
    covariance[list(boundaries), list(boundaries)] = np.nan
    part = information[np.ix_(inside, inside)]
    loose = unbounded(part)
    scale, w, v = scaled_eigen(part)
    inverse = (v / np.where(w < NO_INFORMATION, np.inf, w)) @ v.T / np.outer(scale, scale)
    inverse[loose, :] = inverse[:, loose] = 0.0
    inverse[loose, loose] = np.inf
    covariance[np.ix_(inside, inside)] = inverse
    return covariance


def delta_method(jacobian: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """J C J', where coordinates without a finite variance hand theirs on to all they touch."""
    known = np.isfinite(np.diag(covariance))
    mapped = jacobian @ np.where(np.outer(known, known), covariance, 0.0) @ jacobian.T
    for i in np.flatnonzero(~known):
        touched = np.abs(jacobian[:, i]) > 0
        mapped[touched, touched] = covariance[i, i]
    return mapped


def unbounded(information: np.ndarray) -> np.ndarray:
    """Which coordinates have a share in a direction without information, whatever their units."""
    _, w, v = scaled_eigen(information)
    share = np.sum(v[:, w < NO_INFORMATION] ** 2, axis=1)
    return np.asarray(share > 1e-6)


class LikelihoodRatio(NamedTuple):
    """A test of a smaller model within a larger one.

    Attributes:
        statistic: twice the difference of the log likelihoods.
        degrees: how many parameters more the larger model has.
        p_value: from the chi-square distribution.
        note: what to keep in mind; empty if there is nothing.
    """

    statistic: float
    degrees: int
    p_value: float
    note: str


def likelihood_ratio(one: Any, other: Any) -> LikelihoodRatio:
    """The test of two fits of the same data, whichever is the larger."""
    sizes = len(one.unconstrained_theta), len(other.unconstrained_theta)
    if sizes[0] == sizes[1]:
        raise ValueError(
            f"Both models have {sizes[0]} parameters: a likelihood-ratio test needs one inside "
            "the other. Compare them by AIC."
        )
    for what, name in (("groups", "num_groups"), ("observations", "num_observations")):
        counts = getattr(one.problem, name), getattr(other.problem, name)
        if None not in counts and counts[0] != counts[1]:
            raise ValueError(
                f"One fit has {counts[0]} {what} and the other {counts[1]}: a likelihood-ratio "
                "test needs two fits of the same data. Fit both models to the same rows."
            )
    larger, smaller = (one, other) if sizes[0] > sizes[1] else (other, one)
    gain = larger.log_likelihood - smaller.log_likelihood
    error = larger.likelihood.error + smaller.likelihood.error
    statistic, degrees = max(2 * gain, 0.0), abs(sizes[0] - sizes[1])
    notes = []
    if _may_be_at_a_boundary(larger.problem, smaller.problem):
        notes.append(
            "If the smaller model sets a variance to 0, this p-value is too large, up to twice for "
            "one variance."
        )
    if error > 0.05:
        notes.append(
            f"The likelihoods have errors, {error:.2g} together: so uncertain is half of this."
        )
    if gain < -max(1e-3, 2 * error):
        notes = [
            "The larger model has the lower likelihood, by more than the errors of both "
            f"({error:.2g}): one of the fits missed its maximum."
        ]
    from scipy.special import chdtrc  # slow to import, and only needed here

    return LikelihoodRatio(statistic, degrees, float(chdtrc(degrees, statistic)), " ".join(notes))


def _may_be_at_a_boundary(larger: Any, smaller: Any) -> bool:
    """Whether the smaller model may be the larger one with a parameter at the end of its range.

    Not if all it lacks, by name, are numbers without such an end, and its latents are as many: then
    it lacks fixed effects. Where names cannot be matched nobody knows.

    Args:
        larger: the problem with more parameters.
        smaller: the other.
    """
    ours, theirs = _transforms(larger), _transforms(smaller)
    lacking = ours.keys() - theirs.keys()
    if not ours or len(lacking) != len(ours) - len(theirs):
        return True
    fewer_latents = smaller.latent_size < larger.latent_size
    return fewer_latents or any(ours[name] is not identity for name in lacking)


def _transforms(problem: Any) -> dict[str, Transform]:
    """The transform of every real of theta, by name; empty if two have the same."""
    if not isinstance(problem, Problem):
        return {}
    names = unconstrained_names(problem)
    transforms = jax.tree.leaves(problem.theta_transforms, is_leaf=is_transform)
    sizes = [leaf.size for leaf in jax.tree.leaves(problem.start_theta())]
    each = [one for one, size in zip(transforms, sizes, strict=True) for _ in range(size)]
    named = dict(zip(names, each, strict=True))
    return named if len(named) == len(names) else {}
