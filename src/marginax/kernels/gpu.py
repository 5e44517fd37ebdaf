r"""The velocity of radial kernels in one GPU program that never writes the Gram matrix.

Every program keeps some rows of the cloud, walks over all columns, and adds up K S, W X and W 1 in
registers. Products run on tensor cores: three products of tf32 halves have nearly float32's digits,
and are faster than float32 itself. `python -m benchmarks.velocity_ceiling` measures it.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["can_fuse", "fused_sums"]

LARGEST_DIMENSION = 64  # a wider cloud does not fit into a program's memory
ROWS, COLUMNS, WARPS, STAGES = 128, 64, 8, 3
SPLIT = jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3
ROUNDED = jax.lax.DotAlgorithmPreset.TF32_TF32_F32


def can_fuse(x: Float[Array, "n d"]) -> bool:
    """Whether this machine has such tensor cores, and the cloud fits."""
    if jax.default_backend() != "gpu" or x.dtype != jnp.float32 or x.shape[1] > LARGEST_DIMENSION:
        return False
    device = jax.devices()[0]
    capability = getattr(device, "compute_capability", None)
    is_nvidia = "nvidia" in device.device_kind.lower()
    return is_nvidia and capability is not None and float(capability) >= 8.0


def fused_sums(
    profile: Callable[[Array, Array], tuple[Array, Array]],
    x: Float[Array, "n d"],
    s: Float[Array, "n d"],
    h2: Float[Array, ""],
    *,
    rounded: bool = False,
    interpret: bool = False,
) -> tuple[Float[Array, "n d"], Float[Array, "n d"], Float[Array, " n"]]:
    """K S, W X and W 1, for a centred cloud.

    Args:
        profile: (r^2, h^2) -> K and W.
        x: the cloud, centred.
        s: the scores.
        h2: the squared bandwidth.
        rounded: products with K and W in tf32; distances never.
        interpret: run it without a GPU, slowly, for tests.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    n, d = x.shape
    width = max(16, 1 << (d - 1).bit_length())  # a power of two, as programs want it
    rows_in_all = -(-n // ROWS) * ROWS
    fill = ((0, rows_in_all - n), (0, width - d))
    x, s = jnp.pad(x, fill), jnp.pad(s, fill)
    norms = jnp.sum(x**2, axis=1)
    both = jnp.concatenate([s, x], axis=1).T  # as tensor cores want the second factor
    exactly: Any = jax.lax.Precision.HIGHEST if interpret else SPLIT
    of_gram: Any = ROUNDED if rounded and not interpret else exactly

    def product(a: Array, b: Array, precision: Any) -> Array:
        """a b', both with the summed index last."""
        return jax.lax.dot_general(a, b, (((1,), (1,)), ((), ())), precision=precision)

    # A kernel that is its own repulsion needs one pass over both.
    same = len({id(part) for part in profile(jnp.ones((1, 1), x.dtype), h2)}) == 1
    widths = (2 * width,) if same else (width, width)
    parts = tuple(pl.ds(i * width, w) for i, w in enumerate(widths))

    def program(*refs: Any) -> None:
        x_ref, norms_ref, all_x, all_norms, all_both, h2_ref, *out = refs
        mine, my_norms, scale = x_ref[...], norms_ref[...], h2_ref[0]
        row = pl.program_id(0) * ROWS + jnp.arange(ROWS, dtype=jnp.int32)

        def some_columns(j: Any, carry: Any) -> Any:
            sums, total = carry
            here = pl.ds(j * COLUMNS, COLUMNS)
            column = j * COLUMNS + jnp.arange(COLUMNS, dtype=jnp.int32)
            cross = product(mine, all_x[here, :], exactly)
            squared = jnp.maximum(my_norms[:, None] + all_norms[here][None, :] - 2 * cross, 0)
            squared = jnp.where(row[:, None] == column[None, :], 0.0, squared)
            # Nothing from padding.
            weights = [jnp.where(column[None, :] < n, w, 0.0) for w in profile(squared, scale)]
            sums = tuple(
                old + product(w, all_both[part, here], of_gram)
                for old, w, part in zip(sums, weights, parts, strict=False)
            )
            return sums, total + jnp.sum(weights[-1], axis=1)

        start = tuple(jnp.zeros((ROWS, w), x.dtype) for w in widths)
        sums, total = jax.lax.fori_loop(
            jnp.int32(0),
            jnp.int32(rows_in_all // COLUMNS),
            some_columns,
            (start, jnp.zeros((ROWS,), x.dtype)),
        )
        for found, part in zip(sums, parts, strict=True):
            out[0][:, part] = found
        out[1][...] = total

    def whole(part: Array) -> Any:
        return pl.BlockSpec(part.shape, lambda i: (0,) * part.ndim)

    bandwidth = jnp.reshape(h2, (1,)).astype(x.dtype)
    sums, total = pl.pallas_call(
        program,
        grid=(rows_in_all // ROWS,),
        in_specs=[
            pl.BlockSpec((ROWS, width), lambda i: (i, 0)),
            pl.BlockSpec((ROWS,), lambda i: (i,)),
            *map(whole, (x, norms, both, bandwidth)),
        ],
        out_specs=[
            pl.BlockSpec((ROWS, 2 * width), lambda i: (i, 0)),
            pl.BlockSpec((ROWS,), lambda i: (i,)),
        ],
        out_shape=[
            jax.ShapeDtypeStruct((rows_in_all, 2 * width), x.dtype),
            jax.ShapeDtypeStruct((rows_in_all,), x.dtype),
        ],
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=STAGES),
        interpret=interpret,
    )(x, norms, x, norms, both, bandwidth)
    return sums[:n, :d], sums[:n, width : width + d], total[:n]
