"""Test-wide switches: float64, strict dtype promotion, no silent rank promotion."""

import os
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

X64 = os.environ.get("JAX_ENABLE_X64", "1") != "0"

jax.config.update("jax_enable_x64", X64)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Most of the time goes into compiling: what one test has compiled, another need not, nor a script
# that a test starts.
COMPILED = str(Path(__file__).parent / ".pytest_cache" / "compiled")
for name, value in (
    ("jax_compilation_cache_dir", COMPILED),
    ("jax_persistent_cache_min_compile_time_secs", 0.5),
):
    jax.config.update(name, value)
    os.environ.setdefault(name.upper(), str(value))


MAPS = Path("/proc/self/maps")  # every program has some; Linux allows a process 65,530


def pytest_runtest_teardown() -> None:
    """Gives compiled programs back before a process has more than it may."""
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests first where several processes share them, so that none of them is the tail."""
    for item in items:
        if item.nodeid.startswith("src/marginax/fit.py"):  # its example
            item.add_marker(pytest.mark.slow)
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)


# Programs that tests start as processes of their own: they set up JAX when they are imported.
collect_ignore = ["tests/in_processes.py", "tests/on_eight_devices.py", "tests/mutants.py"]


@pytest.fixture
def key() -> jax.Array:
    """One fixed seed for all tests that need one."""
    return jax.random.key(20260)


@pytest.fixture
def as_users_write() -> Iterator[None]:
    """JAX's own promotion rules, for models written as users write them."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield
