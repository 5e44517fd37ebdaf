"""The key by which problems of the same model are recognised, and share what is compiled.

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

from marginax._core.fingerprints import constants, digest, text_of
from marginax._core.partition import check_blocks
from marginax._core.programs import KEPT, ById
from marginax.model.problem import Problem

__all__ = ["shared_model"]


def shared_model(problem: Problem) -> Problem:
    """The first problem that computes the same, without its data: what is compiled, is for it.

    Its starts are those of that first problem: to be used for what is compiled, and nothing else.
    """
    return _first(_ModelKey(problem))


class _ModelKey:
    """A problem, equal to others that compute the same."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.facts = problem, _facts(problem)

    def __hash__(self) -> int:
        return hash(self.facts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ModelKey) and other.facts == self.facts


@lru_cache(KEPT)
def _first(model: _ModelKey) -> Problem:
    # The key lives as long as the model, and is not to keep the data either.
    model.problem = model.problem.without_data().traced_once()
    return model.problem


def _facts(problem: Problem) -> tuple[Any, ...]:
    arguments = (problem.start_theta(), problem.start_latent(), problem.data)
    # A new function every time: JAX would remember the trace of one it knows, with the values that
    # global variables had then.
    traced = jax.make_jaxpr(lambda *parts: problem.unconstrained_log_joint(*parts))(*arguments)
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
        None if problem.latent_blocks is None else check_blocks(problem.latent_blocks),
    )


def _shapes(tree: PyTree) -> tuple[Any, ...]:
    leaves, structure = jax.tree.flatten(tree)
    return structure, *((leaf.shape, str(leaf.dtype)) for leaf in leaves)
