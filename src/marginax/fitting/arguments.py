"""Refuses what `fit` cannot work with, before any time is spent."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marginax._core.checks import is_integer
from marginax._core.memory import memory_size
from marginax.algorithms.contract import check_algorithm
from marginax.kernels.base import check_kernel
from marginax.model import parameter_table
from marginax.model.problem import Problem
from marginax.running.checkpoints import check_folder, orbax
from marginax.running.sharding import check_mesh

__all__ = ["check_fit"]


def check_fit(
    problem: Any,
    key: Any,
    counts: dict[str, Any],
    checkpoint: Any,
    *,
    algorithm: Any = None,
    kernel: Any = None,
    mesh: Any = None,
) -> None:
    """The arguments of `fit`.

    Args:
        problem: should be a Problem, whose names fit its theta.
        key: should be a key.
        counts: by name; None is a default.
        checkpoint: needs orbax, and a folder to write to, if it is given.
        algorithm: should be an Algorithm, or None.
        kernel: should be a Kernel, or None.
        mesh: should be a mesh, or None.
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
    _check_counts(counts)
    if algorithm is not None:
        check_algorithm(algorithm)
    if kernel is not None:
        check_kernel(kernel)
    if mesh is not None:
        check_mesh(mesh)
    _check_room(problem, counts.get("num_particles"), 1 if mesh is None else mesh.size)
    parameter_table.parameter_names(problem)  # refuses names that do not fit theta
    if checkpoint is not None:
        orbax()
        check_folder(checkpoint)


def _check_counts(counts: dict[str, Any]) -> None:
    for name, value in counts.items():
        if value is None or (is_integer(value) and value >= 1):
            continue
        start = " start" if name == "num_starts" else ""
        why = f"there must be at least one{start}" if is_integer(value) else "it counts something"
        raise ValueError(
            f"{name} is {value!r}, but {why}: give an integer of 1 or more, or leave it out."
        )


def _check_room(problem: Problem, num_particles: int | None, num_devices: int) -> None:
    """Refuses more particles than memory holds, of which the system would end the process.

    Args:
        problem: with its latents.
        num_particles: as given; None for the default.
        num_devices: over which they are spread.
    """
    leaves = jax.tree.leaves(problem.start_latent())
    cloud = (num_particles or 1) * sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
    # At the very least: a cloud, its scores, and the cloud that becomes of it.
    needed, there = 3 * cloud / num_devices, memory_size()
    if there is not None and needed > there:
        raise ValueError(
            f"num_particles is {num_particles}, but so many particles, their scores and where they "
            f"move to take {needed / 1e9:.3g} GB, and there are {there / 1e9:.3g} GB. Give a "
            "smaller number, or leave it out."
        )


def _article(value: Any) -> str:
    name = getattr(value, "__name__", None)
    return f"the function {name}" if callable(value) and name else f"a {type(value).__name__}"


def _is_key(key: Any) -> bool:
    if not isinstance(key, jax.Array | np.ndarray):
        return False
    return bool(jnp.issubdtype(key.dtype, jax.dtypes.prng_key)) or (
        key.dtype == jnp.uint32 and key.ndim == 1
    )
