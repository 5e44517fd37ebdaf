"""What the paper reads off a trajectory of theta."""

from importlib.resources import files

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

__all__ = ["iterations", "recorded_starts"]


def iterations(
    history: Float[Array, " steps"],
    exact: ArrayLike,
    tolerance: float = 0.05,
    in_a_row: int = 10,
) -> Int[Array, ""]:
    """Index of the first of ten iterates in a row within the tolerance; the length if none are.

    NaN is never within anything, so a run that diverged has not arrived.
    """
    close = (jnp.abs(history - exact) < tolerance).astype(jnp.int32)
    kept = jnp.convolve(close, jnp.ones(in_a_row, jnp.int32), mode="valid") == in_a_row
    return jnp.where(jnp.any(kept), jnp.argmax(kept), history.shape[0])


def recorded_starts() -> dict[str, np.ndarray]:
    """Where the released code started; see `data/README.md`."""
    with files("marginax.paper").joinpath("data/starts.npz").open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        return {name: archive[name] for name in archive.files}
