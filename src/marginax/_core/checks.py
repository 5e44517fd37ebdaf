"""Refuses bad input before anything is compiled, in a sentence: what, why not, what to do instead.

Structure, shapes and dtypes are always checked. Values (is it finite?) are checked only when there
are values to look at: under `jit` and `vmap` they are not known yet, and a loop's own status has to
report them.
"""

import inspect
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path
from jaxtyping import Array, PyTree

from marginax._core.processes import whole
from marginax.typing import Particles, Theta

__all__ = [
    "check_count",
    "check_level",
    "check_positive",
    "check_scalar",
    "check_start",
    "is_integer",
    "is_number",
    "is_traced",
    "warn_user",
]

PARTICLES = "particles"


def check_start(
    theta: Theta, particles: Particles, latent: str = PARTICLES
) -> tuple[Theta, Particles]:
    """Checks the starting values and returns them as arrays of a definite dtype.

    Args:
        theta: where theta starts.
        particles: where the cloud starts.
        latent: what the user calls the cloud.
    """
    theta = _floating(theta, "theta", "Write 0.0 instead of 0, or convert with `.astype(float)`.")
    particles = _floating(
        particles,
        latent,
        "Convert with `.astype(float)`; a discrete latent has no gradient and must be summed out "
        "of log_joint.",
    )
    _check_leading_axes(particles, latent)
    _check_finite(theta, "theta")
    _check_finite(particles, latent)
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


def is_traced(value: Any) -> bool:
    """Whether this is a stand-in inside jit or vmap, whose value is not known."""
    return isinstance(value, jax.core.Tracer)


def warn_user(message: str) -> None:
    """A warning that points at the user's own line, however deep in here it is found."""
    here, frame, level = str(Path(__file__).parents[1]), inspect.currentframe(), 0
    while frame is not None:
        file = frame.f_code.co_filename
        # The dataclass's __init__, and in tests the checks of types around every function.
        ours = file.startswith((here, "<")) or "jaxtyping" in file or "beartype" in file
        if not ours:
            break
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level + 1)


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


def _check_leading_axes(particles: Particles, latent: str) -> None:
    leaves = tree_flatten_with_path(particles)[0]
    if not leaves:
        raise ValueError(
            f"{latent} has no arrays in it. Pass a pytree of arrays whose leading axis runs over "
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
