"""The key by which problems of the same model are recognised, and share what is compiled.

A simulation study fits the same functions to a thousand data sets. Programs are compiled for a
function, so that all these problems must hand over the same one: that of the first of them. What
makes two models the same is what they compute, constants included, and not their names: a function
that reads another global variable than it did before is another model.

Where the text of a trace says all that is computed, its checksum is the model's identity: another
process that fits the same model finds its programs by that.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import jax
from jaxtyping import PyTree

from marginax._core.fingerprints import constants, digest, text_of
from marginax._core.partition import check_blocks
from marginax._core.programs import KEPT, ById
from marginax.model.problem import Problem
from marginax.model.transforms.trees import is_transform

__all__ = ["models_as_they_are", "shared_model"]


def shared_model(problem: Problem) -> Problem:
    """The first problem that computes the same, without its data: what is compiled, is for it.

    Its starts are those of that first problem: to be used for what is compiled, and nothing else.
    """
    known = _known.get()
    if known is None:
        return _first(_ModelKey(problem))
    key = _object_key(problem)
    if key not in known:
        known[key] = (problem, _first(_ModelKey(problem)))  # the problem too: ids are used again
    return known[key][1]


_known: ContextVar[dict[Any, tuple[Problem, Problem]] | None] = ContextVar("known", default=None)


@contextmanager
def models_as_they_are() -> Iterator[None]:
    """Within it a problem is traced for its key once: what its functions read does not change.

    A thread is within it if it runs in a copy of the context.
    """
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def _object_key(problem: Problem) -> tuple[Any, ...]:
    """Equal for a problem and its copies in this precision."""
    functions = (problem.log_joint, problem.group_log_joint, problem.group_log_joints)
    transforms = (problem.theta_transforms, problem.latent_transforms)
    marks = [*functions, *jax.tree.leaves(transforms, is_leaf=is_transform), problem.latent_blocks]
    leaves, structure = jax.tree.flatten((problem.theta, problem.latent, problem.data))
    return (
        *map(id, marks),
        structure,
        *((leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)) for leaf in leaves),
        problem.num_groups,
        jax.config.jax_enable_x64,  # type: ignore[attr-defined]
    )


class _ModelKey:
    """A problem, equal to others that compute the same."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.facts, self.identity = _facts(problem)

    def __hash__(self) -> int:
        return hash(self.facts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ModelKey) and other.facts == self.facts


@lru_cache(KEPT)
def _first(model: _ModelKey) -> Problem:
    # The key lives as long as the model, and is not to keep the data either.
    model.problem = model.problem.without_data().traced_once(model.identity)
    return model.problem


def _facts(problem: Problem) -> tuple[tuple[Any, ...], str | None]:
    """What tells a model from others in this process, and its identity, if it has one."""
    arguments = (problem.start_theta(), problem.start_latent(), problem.data)
    # A new function every time: JAX would remember the trace of one it knows, with the values that
    # global variables had then.
    traced = jax.make_jaxpr(lambda *parts: problem.unconstrained_log_joint(*parts))(*arguments)
    text = text_of(traced)
    told = (
        digest(text, constants(traced)),
        *(_shapes(part) for part in arguments),
        problem.num_groups,
        problem.group_log_joint is None,
        None if problem.latent_blocks is None else check_blocks(problem.latent_blocks),
    )
    # What a derivative rule or a call back to Python does is not in the text.
    calls_python = re.search("callback|ffi_call|custom_call", text) is not None
    has_rules = re.search("custom_(jvp|vjp)", text) is not None
    if not calls_python and not has_rules:
        return (*told, None), repr(told)
    owner = problem.group_log_joint or problem.group_log_joints or problem.log_joint
    rules = None if calls_python else _derivative_digest(problem, arguments)
    if rules is not None:  # what the rules do is known by that
        return (*told, rules), repr((told, rules))
    return (*told, ById(owner, mark=owner)), None


def _derivative_digest(problem: Problem, arguments: tuple[PyTree, ...]) -> str | None:
    """A checksum of the derivatives with rules of their own, as far as programs go; None if none.

    `jax.nn.softplus` has such a rule, and so have many others of JAX. Forward derivatives of the
    third order hold all that value, gradient, Hessian and their own slopes are made of.
    """
    theta, latent, data = arguments

    def onwards(function: Any) -> Any:
        return lambda at, data: jax.jvp(lambda at: function(at, data), (at,), (at,))

    def value(at: Any, data: Any) -> Any:  # an argument: other data are the same model
        return problem.unconstrained_log_joint(at[0], at[1], data)

    derivatives = onwards(onwards(onwards(value)))
    try:
        traced = jax.make_jaxpr(derivatives)((theta, latent), data)
    except Exception:  # noqa: BLE001, a rule for reverse derivatives alone, or one of the user's
        return None
    text = text_of(traced)
    unsaid = (
        re.search("custom_(vjp|lin)", text) is not None
    )  # rules of which the text has names alone
    return None if unsaid else digest(text, constants(traced))


def _shapes(tree: PyTree) -> tuple[Any, ...]:
    leaves, structure = jax.tree.flatten(tree)
    return structure, *((leaf.shape, str(leaf.dtype)) for leaf in leaves)
