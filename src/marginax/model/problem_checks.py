"""What is asked of a problem when it is made: refused, or warned of, before anything is fitted."""

from typing import Any

import jax

from marginax._core.at_start import check_log_joint
from marginax._core.checks import check_start, is_traced
from marginax.model.groups import check_apart, check_one_each, check_one_number
from marginax.model.log_joint import require_density
from marginax.model.slips import check_indices, warn_of_long_table, warn_of_padding
from marginax.model.transforms.trees import check_contained

__all__ = ["check_problem"]


def check_problem(problem: Any) -> None:
    """Goes through all checks of a `Problem`, in the precision in which it is given.

    Args:
        problem: with its arrays, transforms and functions in place.
    """
    require_density(problem.log_joint, "a Problem is for `fit`, which computes the likelihood")
    check_contained(problem.theta, problem.theta_transforms, "theta")
    check_contained(problem.latent, problem.latent_transforms, "latent")
    latent = jax.tree.map(lambda leaf: leaf[None], problem.start_latent())
    theta, latent = check_start(problem.start_theta(), latent, "latent")
    _check_shapes(problem)
    model = problem.without_data()  # what is compiled is kept, and not to keep the data
    log_joint, grouped = model.unconstrained_log_joint, problem.num_groups is not None
    each = model.unconstrained_group_log_joints if grouped else None
    values_known = _are_known((theta, latent, problem.data))
    if values_known:
        one = jax.tree.map(lambda leaf: leaf[0], latent)
        check_indices(each or log_joint, theta, one, problem.data)
    check_log_joint(log_joint, theta, latent, problem.data, latent="latent", each=each)
    if not values_known:
        return
    if problem.group_log_joints is not None:
        check_apart(
            problem.unconstrained_group_log_joints,
            problem.start_theta(),
            problem.start_latent(),
            problem.data,
        )
    if problem.group_log_joint is not None:
        parts = (problem.theta, problem.latent, problem.data)
        warn_of_long_table(problem.group_log_joint, *parts, problem.num_groups)
        warn_of_padding(log_joint, theta, latent, problem.data)


def _check_shapes(problem: Any) -> None:
    """What the functions of a user return, as these see their arguments."""
    if problem.group_log_joint is not None:
        check_one_number(problem.group_log_joint, problem.theta, problem.latent, problem.data)
    elif problem.group_log_joints is not None:
        latents = problem.constrained_latent(problem.start_latent())
        check_one_each(problem.group_log_joints, problem.theta, latents, problem.data)


def _are_known(tree: Any) -> bool:
    """Whether values can be looked at: not under jit, nor on the devices of other processes."""
    return all(
        not is_traced(leaf) and getattr(leaf, "is_fully_addressable", True)
        for leaf in jax.tree.leaves(tree)
    )
