"""Refuses bad input before anything is compiled, in a sentence: what, why not, what to do instead.

Structure, shapes and dtypes are always checked. Values (is it finite?) are checked only when there
are values to look at: under `jit` and `vmap` they are not known yet, and a loop's own status has to
report them.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path
from jaxtyping import Array, PyTree

from marginax._core.processes import whole
from marginax._core.programs import ById, recent
from marginax.typing import Data, LogDensity, Particles, Theta

__all__ = [
    "check_count",
    "check_level",
    "check_log_joint",
    "check_positive",
    "check_scalar",
    "check_start",
    "is_integer",
    "is_number",
    "is_traced",
]


def check_start(theta: Theta, particles: Particles) -> tuple[Theta, Particles]:
    """Checks the starting values and returns them as arrays of a definite dtype."""
    theta = _floating(theta, "theta", "Write 0.0 instead of 0, or convert with `.astype(float)`.")
    particles = _floating(
        particles,
        "particles",
        "Convert with `.astype(float)`; a discrete latent has no gradient and must be summed out "
        "of log_joint.",
    )
    _check_leading_axes(particles)
    _check_finite(theta, "theta")
    _check_finite(particles, "particles")
    return theta, particles


def check_positive(value: Any, name: str) -> Any:
    """Refuses a step, friction or mass that is not one positive number (unless it is traced)."""
    if is_traced(value):
        return value
    if not is_number(value):
        raise TypeError(f"{name} is {value!r}, but it must be a positive number.")
    if np.ndim(value) != 0:
        raise ValueError(
            f"{name} has shape {np.shape(value)}, but it must be one number. To sweep over "
            "values, vmap a function that builds the algorithm from one of them."
        )
    if not 0 < float(value) < float("inf"):
        raise ValueError(f"{name} is {value}, but it must be a positive finite number.")
    return value


def check_count(value: Any, name: str, least: int = 1) -> int:
    """Refuses what does not count something; an integer of NumPy's counts as well as Python's."""
    if not is_integer(value) or value < least:
        raise ValueError(f"{name} is {value!r}, but it must be an integer of at least {least}.")
    return int(value)


def is_integer(value: Any) -> bool:
    """Whether this is an integer that is known; True and False are none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether this is a number or an array of them, known or traced."""
    return isinstance(value, int | float | np.number | np.ndarray | jax.Array)


def check_level(level: float) -> None:
    """Refuses a level of confidence that is no probability."""
    if not 0 < level < 1:
        raise ValueError(
            f"level is {level}, but it must be between 0 and 1: 0.95 for intervals of 95 %."
        )


def check_scalar(value: Any) -> Any:
    """Refuses a log joint that is not one real number; called while it is being traced."""
    if not (is_number(value) or isinstance(value, jax.ShapeDtypeStruct)):
        forgotten = "; is a `return` missing?" if value is None else "."
        raise TypeError(
            f"log_joint returned {type(value).__name__}, but it must return one number, the log "
            f"density of a single latent{forgotten}"
        )
    if jnp.shape(value) != ():
        raise ValueError(
            f"log_joint returned an array of shape {jnp.shape(value)}, but it must return one "
            "number, the log density of a single latent. Sum over the observations, and do not "
            "expect the particle axis: log_joint sees one particle at a time."
        )
    if not jnp.issubdtype(jnp.result_type(value), jnp.floating):
        raise TypeError(
            f"log_joint returned dtype {jnp.result_type(value)}, but a log density must be a real "
            "floating-point number."
        )
    return value


def check_log_joint(log_joint: LogDensity, theta: Theta, particles: Particles, data: Data) -> None:
    """Evaluates the log joint at the start: its shape always, value and gradients if known."""
    # Inside jit every new array is a tracer, also one made of constants.
    known = (theta, particles, data, jnp.zeros(()))
    if any(is_traced(leaf) for leaf in jax.tree.leaves(known)):
        _check_log_joint_shape(log_joint, theta, particles, data)
        return
    try:
        scores, values = _evaluate(log_joint, theta, particles, data)
    except Exception:
        _check_log_joint_shape(log_joint, theta, particles, data)  # says what is wrong, in words
        raise
    if not is_traced(values):  # it is if log_joint closes over something that is being traced
        _check_log_joint_values(*jax.tree.map(whole, (scores, values)))


def is_traced(value: Any) -> bool:
    """Whether this is a stand-in inside jit or vmap, whose value is not known."""
    return isinstance(value, jax.core.Tracer)


def _check_log_joint_shape(
    log_joint: LogDensity, theta: Theta, particles: Particles, data: Data
) -> None:
    one = jax.tree.map(lambda leaf: leaf[0], particles)
    try:
        # Nothing is wrapped around it, so that the user meets the error of their own function.
        value = jax.eval_shape(lambda theta, latent: log_joint(theta, latent, data), theta, one)
    except Exception as error:
        raise ValueError(
            f"log_joint failed at the start with {type(error).__name__}: {error}\n"
            f"It was given theta = {_describe(theta)}, one latent = {_describe(one)} and "
            f"data = {_describe(data)}. Check that theta and particles have the structure and "
            "shapes your function expects, and that it is written in jax.numpy."
        ) from error
    check_scalar(value)


def _check_log_joint_values(scores: PyTree, values: np.ndarray) -> None:
    finite = np.isfinite(values)
    if not np.all(finite):
        raise ValueError(
            f"log_joint is {values[np.argmin(finite)]} at the start: it is not finite for "
            f"{int(np.sum(~finite))} of the {finite.shape[0]} particles. Start theta and "
            "particles inside the support of the model, with constrained quantities on an "
            "unconstrained scale."
        )
    for gradient, name in zip(scores, ("theta", "particles"), strict=True):
        for path, leaf in tree_flatten_with_path(gradient)[0]:
            if not np.all(np.isfinite(leaf)):
                raise ValueError(
                    f"The gradient of log_joint with respect to {name}{keystr(path)} is not finite "
                    "at the start, though log_joint is. Look for a sqrt, a log or a norm at zero, "
                    "or a `jnp.where` with a bad branch."
                )


def _evaluate(
    log_joint: LogDensity, theta: Theta, particles: Particles, data: Data
) -> tuple[PyTree, Array]:
    """Both gradients and the values; compiled once, unless data holds more than arrays."""
    arrays = all(isinstance(leaf, np.ndarray | jax.Array) for leaf in jax.tree.leaves(data))
    fixed = ById(log_joint, mark=log_joint)
    evaluate = _compiled(fixed) if arrays else partial(_values_and_scores, fixed)
    return evaluate(theta, particles, data)


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


def _floating(tree: PyTree, name: str, remedy: str) -> PyTree:
    def convert(path: Any, leaf: Any) -> Array:
        try:
            dtype = jnp.result_type(leaf)
        except TypeError as error:
            raise TypeError(
                f"{name}{keystr(path)} is {leaf!r} of type {type(leaf).__name__}, but {name} must "
                "be a pytree of arrays."
            ) from error
        if not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(
                f"{name}{keystr(path)} has dtype {dtype}, but gradients need real floating-point "
                f"numbers. {remedy}"
            )
        # A weak type (a Python float) would turn strong in the first step and break a scan's carry.
        return jnp.asarray(leaf, dtype=dtype)

    return jax.tree_util.tree_map_with_path(convert, tree)


def _check_leading_axes(particles: Particles) -> None:
    leaves = tree_flatten_with_path(particles)[0]
    if not leaves:
        raise ValueError(
            "particles has no arrays in it. Pass a pytree of arrays whose leading axis runs over "
            "the particles."
        )
    for path, leaf in leaves:
        if leaf.ndim == 0:
            raise ValueError(
                f"particles{keystr(path)} is a single number, but every leaf needs a leading axis "
                "over the particles: for one particle, add an axis of length 1."
            )
    (first_path, first), *others = leaves
    for path, leaf in others:
        if leaf.shape[0] != first.shape[0]:
            raise ValueError(
                f"particles{keystr(first_path)} holds {first.shape[0]} particles and "
                f"particles{keystr(path)} holds {leaf.shape[0]}: the leading axes differ. Every "
                "leaf must hold the same number of particles."
            )
    if first.shape[0] == 0:
        raise ValueError(
            "particles has a leading axis of length 0, so there are no particles. Start with at "
            "least one."
        )


def _check_finite(tree: PyTree, name: str) -> None:
    for path, leaf in tree_flatten_with_path(tree)[0]:
        if is_traced(leaf):
            continue
        bad = int(np.sum(~np.isfinite(whole(leaf))))
        if bad:
            raise ValueError(
                f"{name}{keystr(path)} is not finite at the start: {bad} of its {leaf.size} values "
                "are NaN or infinite. Start from finite numbers."
            )


def _describe(tree: PyTree) -> str:
    def words(leaf: Any) -> str:
        try:
            return f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}"
        except TypeError:
            return type(leaf).__name__

    return str(jax.tree.map(words, tree)).replace("'", "")
