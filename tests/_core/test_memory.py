"""Out of memory becomes advice, wherever it happens."""

import jax
import jax.numpy as jnp
import pytest

import marginax as mx
from marginax._core.memory import memory_explained
from marginax.errors import OutOfMemoryError


def too_large(theta, x, y):
    """A log joint that makes 2^45 numbers on its way, which no machine has room for."""
    many = jnp.sin(x[0] * jax.lax.iota(x.dtype, 2**30)).reshape(-1, 1) @ jnp.ones((1, 2**15))
    return -0.5 * jnp.sum((x - theta) ** 2) + 0 * jnp.sum(many.T @ many)


@pytest.mark.skipif(
    jax.version.__version_info__ >= (0, 12),
    reason="XLA crashes while it compiles arrays that no machine has room for",
)
@pytest.mark.parametrize("where", ["run", "a block of steps"])
def test_a_run_that_does_not_fit_says_what_helps(where):
    method = mx.pgd(too_large, 0.1, 0.1)
    if where == "a block of steps":  # an algorithm that does not know its log joint is not checked
        method = method._replace(log_joint=None)
    with pytest.raises(OutOfMemoryError, match=f"ran out of memory in {where}") as caught:
        mx.run(method, 0.0, jnp.zeros((2, 1)), max_steps=3, key=jax.random.key(0))
    for advice in ("batch", "fewer particles", "tile", "float32", "mesh="):
        assert advice in str(caught.value)
    assert "Out of memory allocating" in str(caught.value)


def test_other_errors_of_the_device_stay_what_they_are():
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"), memory_explained("a step"):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")


def test_the_size_is_named():
    held = jnp.zeros(4_000_000, jnp.float32)
    with (
        pytest.raises(OutOfMemoryError, match="state and data take 0.016 GB"),
        memory_explained("a step", held),
    ):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory.\nMore lines.")


def test_the_size_asked_for_is_found_among_other_words():
    said = (
        "RESOURCE_EXHAUSTED: Failed to get configs. Example failure: \nOut of memory while trying "
    )
    with (
        pytest.raises(OutOfMemoryError, match="Out of memory while trying to allocate 670.57GiB"),
        memory_explained("run"),
    ):
        raise jax.errors.JaxRuntimeError(said + "to allocate 670.57GiB with allocator GPU_0_bfc.")
