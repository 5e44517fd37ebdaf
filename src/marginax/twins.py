"""Problems of one model share a twin without data, and with it all that is compiled for them.

A simulation study fits the same functions to a thousand data sets. Programs are compiled for a
function, so that all these problems must hand over the same one: that of the first of them. What
makes two models the same is what they compute, constants included, and not their names: a function
that reads another global variable than it did before is another model.
"""

import re
from functools import lru_cache
from typing import Any

import jax
from jaxtyping import PyTree

from marginax.base import ById
from marginax.fingerprints import constants, digest, text_of
from marginax.partition import check_over
from marginax.problem import Problem
from marginax.programs import KEPT

__all__ = ["twin"]


def twin(problem: Problem) -> Problem:
    """The first problem that computes the same, without its data.

    Its starts are those of that first problem: to be used for what is compiled, and nothing else.
    """
    return _first(_Model(problem))


class _Model:
    """A problem, equal to others that compute the same."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.facts = problem, _facts(problem)

    def __hash__(self) -> int:
        return hash(self.facts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Model) and other.facts == self.facts


@lru_cache(KEPT)
def _first(model: _Model) -> Problem:
    # The key lives as long as the twin, and is not to keep the data either.
    model.problem = model.problem.without_data()
    return model.problem


def _facts(problem: Problem) -> tuple[Any, ...]:
    arguments = (problem.start_theta(), problem.start_latent(), problem.data)
    traced = jax.make_jaxpr(problem.free_log_joint)(*arguments)
    text = text_of(traced)
    # What a derivative rule or a call back to Python does is not in the text.
    opaque = re.search("custom_[jv]vp|callback|ffi_call|custom_call", text) is not None
    owner = problem.group_log_joint or problem.group_log_joints or problem.log_joint
    return (
        digest(text, constants(traced)),
        ById(owner, mark=owner) if opaque else None,
        *(_shapes(part) for part in arguments),
        problem.num_groups,
        problem.group_log_joint is None,
        None if problem.latent_blocks is None else check_over(problem.latent_blocks),
    )


def _shapes(tree: PyTree) -> tuple[Any, ...]:
    leaves, structure = jax.tree.flatten(tree)
    return structure, *((leaf.shape, str(leaf.dtype)) for leaf in leaves)
