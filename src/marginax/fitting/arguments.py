"""Refuses what `fit` cannot work with, before any time is spent."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marginax._core.checks import is_integer
from marginax.model import parameter_table
from marginax.model.problem import Problem
from marginax.running.checkpoints import orbax

__all__ = ["check_fit"]


def check_fit(problem: Any, key: Any, counts: dict[str, Any], checkpoint: Any) -> None:
    """The arguments of `fit`.

    Args:
        problem: should be a Problem, whose names fit its theta.
        key: should be a key.
        counts: by name; None is a default.
        checkpoint: needs orbax if it is given.
    """
    if not isinstance(problem, Problem):
        advice = " A NumPyro model becomes one by `marginax.from_numpyro(model, *args)`."
        raise TypeError(
            f"problem is {_article(problem)}, but fit needs a `marginax.Problem`."
            + (advice if callable(problem) else "")
        )
    if not _is_key(key):
        raise TypeError(
            f"key is {key!r}, which is no random key: give `jax.random.key(0)`, or another seed."
        )
    for name, value in counts.items():
        if value is not None and not (is_integer(value) and value >= 1):
            start = " start" if name == "num_starts" else ""
            raise ValueError(
                f"{name} is {value!r}, but there must be at least one{start}: give an integer of "
                "1 or more, or leave it out."
            )
    parameter_table.parameter_names(problem)  # refuses names that do not fit theta
    if checkpoint is not None:
        orbax()


def _article(value: Any) -> str:
    name = getattr(value, "__name__", None)
    return f"the function {name}" if callable(value) and name else f"a {type(value).__name__}"


def _is_key(key: Any) -> bool:
    if not isinstance(key, jax.Array | np.ndarray):
        return False
    return bool(jnp.issubdtype(key.dtype, jax.dtypes.prng_key)) or (
        key.dtype == jnp.uint32 and key.ndim == 1
    )
