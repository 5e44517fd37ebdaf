"""The log joint at the start: its shape, its value and its gradients, before anything is compiled.

Structure, shapes and dtypes are always checked; values are when they are known, not under `jit`.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path
from jaxtyping import Array, PyTree

from marginax._core.checks import PARTICLES, check_scalar, is_traced
from marginax._core.processes import whole
from marginax._core.programs import ById, recent
from marginax._core.reasons import blame_data, blame_start, first_few, not_finite
from marginax.typing import Data, Latent, LogDensity, Particles, Theta

__all__ = ["NotFiniteError", "check_log_joint", "check_shapes", "evaluate"]


class NotFiniteError(ValueError):
    """The log joint, or its gradient, is not finite at the start."""


def check_log_joint(
    log_joint: LogDensity,
    theta: Theta,
    particles: Particles,
    data: Data,
    *,
    latent: str = PARTICLES,
    each: LogDensity | None = None,
    identity: str | None = None,
) -> None:
    """Evaluates the log joint at the start: its shape always, value and gradients if known.

    Args:
        log_joint: of one latent.
        theta: where theta starts.
        particles: where the cloud starts.
        data: handed on.
        latent: what the user calls the cloud: particles of a `run`, the latent of a `Problem`.
        each: the log joints of the groups, one number each, if there are groups.
        identity: of the log joint, for other processes, if it has one.
    """
    # Inside jit every new array is a tracer, also one made of constants.
    known = (theta, particles, data, jnp.zeros(()))
    if any(is_traced(leaf) for leaf in jax.tree.leaves(known)):
        _check_log_joint_shape(log_joint, theta, particles, data)
        return
    try:
        scores, values = evaluate(log_joint, theta, particles, data, identity)
    except Exception:
        _check_log_joint_shape(log_joint, theta, particles, data)  # says what is wrong, in words
        raise
    if is_traced(values):  # it is if log_joint closes over something that is being traced
        return
    scores, values = jax.tree.map(whole, (scores, values))
    wrong = _what_is_not_finite(scores, values, latent)
    if wrong is None:
        return

    def is_finite(*there: Any) -> bool:
        found = jax.tree.leaves(evaluate(log_joint, *there))
        return all(bool(np.all(np.isfinite(whole(leaf)))) for leaf in found)

    there = (theta, particles, data)
    where = "" if each is None else _which_groups(each, *there)
    reason = blame_data(is_finite, *there)
    if reason is None and not np.all(np.isfinite(values)):
        reason = blame_start(is_finite, *there, latent)
    reason = reason or " ".join([wrong.advice, *not_finite(data)])
    raise NotFiniteError(f"{wrong.said}{where}. {reason}")


def check_shapes(log_joint: LogDensity, theta: Theta, one: Latent, data: Data, what: str) -> Any:
    """The shape of what a user's function returns; its failure as a sentence, with its arguments.

    Args:
        log_joint: as the user wrote it.
        theta: as that function sees it.
        one: likewise, a latent.
        data: likewise.
        what: the function in words.
    """
    try:
        # Nothing is wrapped around it, so that the user meets the error of their own function.
        return jax.eval_shape(lambda theta, latent: log_joint(theta, latent, data), theta, one)
    except Exception as error:
        raise ValueError(
            f"{what} failed at the start with {type(error).__name__}: {error}\n"
            f"It was given theta = {_describe(theta)}, one latent = {_describe(one)} and "
            f"data = {_describe(data)}. Check that these have the structure and shapes your "
            "function expects, and that it is written in jax.numpy."
        ) from error


def evaluate(
    log_joint: LogDensity,
    theta: Theta,
    particles: Particles,
    data: Data,
    identity: str | None = None,
) -> tuple[PyTree, Array]:
    """Both gradients and the values; compiled once, unless data holds more than arrays."""
    arrays = all(isinstance(leaf, np.ndarray | jax.Array) for leaf in jax.tree.leaves(data))
    fixed = ById(log_joint, mark=log_joint, identity=identity)
    program = _compiled(fixed) if arrays else partial(_values_and_scores, fixed)
    return program(theta, particles, data)


def _check_log_joint_shape(
    log_joint: LogDensity, theta: Theta, particles: Particles, data: Data
) -> None:
    one = jax.tree.map(lambda leaf: leaf[0], particles)
    check_scalar(check_shapes(log_joint, theta, one, data, "log_joint"))


class _Wrong(NamedTuple):
    """What is not finite, and general advice."""

    said: str
    advice: str


def _what_is_not_finite(scores: PyTree, values: np.ndarray, latent: str) -> _Wrong | None:
    """What is not finite and what to do if nothing better is known, or None if all is finite."""
    finite = np.isfinite(values)
    if not np.all(finite):
        said = f"log_joint is {values[np.argmin(finite)]} at the start"
        if latent == PARTICLES:
            said += f": it is not finite for {int(np.sum(~finite))} of the {len(finite)} particles"
            advice = "with constrained quantities on an unconstrained scale."
        else:
            said = said.replace(
                " at the start", f", not finite, at the start of theta and {latent}"
            )
            advice = f"where theta_transforms and {latent}_transforms keep them."
        return _Wrong(said, f"Start theta and {latent} inside the support of the model, {advice}")
    for gradient, name in zip(scores, ("theta", latent), strict=True):
        for path, leaf in tree_flatten_with_path(gradient)[0]:
            if not np.all(np.isfinite(leaf)):
                return _Wrong(
                    f"The gradient of log_joint with respect to {name}{keystr(path)} is not finite "
                    "at the start, though log_joint is",
                    "Look for a sqrt, a log or a norm at zero, or a `jnp.where` with a bad branch.",
                )
    return None


def _which_groups(each: LogDensity, theta: Theta, particles: Particles, data: Data) -> str:
    one = jax.tree.map(lambda leaf: leaf[0], particles)
    values = whole(each(theta, one, data))
    wrong = np.flatnonzero(~np.isfinite(values))
    words = f", in {wrong.size} of the {values.size} groups: {first_few(wrong)}"
    return words if wrong.size else ""


def _values_and_scores(
    log_joint: ById, theta: Theta, particles: Particles, data: Data
) -> tuple[PyTree, Array]:
    def total(theta: Theta, particles: Particles) -> tuple[Array, Array]:
        values = jax.vmap(lambda latent: check_scalar(log_joint.value(theta, latent, data)))(
            particles
        )
        return jnp.sum(values), values

    # The sum's gradient in theta, not one gradient per particle: no more memory than a step.
    return jax.grad(total, argnums=(0, 1), has_aux=True)(theta, particles)


_compiled = recent(_values_and_scores)


def _describe(tree: PyTree) -> str:
    def words(leaf: Any) -> str:
        try:
            return f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}"
        except TypeError:
            return type(leaf).__name__

    return str(jax.tree.map(words, tree)).replace("'", "")
