"""Test-wide switches: float64, strict dtype promotion, no silent rank promotion."""

import collections
import os
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

X64 = os.environ.get("JAX_ENABLE_X64", "1") != "0"

jax.config.update("jax_enable_x64", X64)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Most of the time goes into compiling. Code that is optimised less is compiled sooner (the round in
# float32 has what users have), and what one test has compiled, another need not, nor a script that
# a test starts.
if X64:
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
COMPILED = str(Path(__file__).parent / ".pytest_cache" / "compiled")
for name, value in (
    ("jax_compilation_cache_dir", COMPILED),
    ("jax_persistent_cache_min_compile_time_secs", 0.5),
):
    chosen = os.environ.setdefault(name.upper(), str(value))
    jax.config.update(name, type(value)(chosen))


MAPS = Path("/proc/self/maps")  # every program has some; Linux allows a process 65,530


def pytest_runtest_teardown() -> None:
    """Gives compiled programs back before a process has more than it may."""
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > 40_000:
        jax.clear_caches()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with many slow tests first where processes share them, so that none is the tail."""
    for item in items:
        if item.nodeid.startswith("src/marginax/fit.py"):  # its example
            item.add_marker(pytest.mark.slow)
    if "PYTEST_XDIST_WORKER" in os.environ:
        slow = collections.Counter(
            item.path for item in items if item.get_closest_marker("slow") is not None
        )
        items.sort(key=lambda item: -slow[item.path])  # stable: a file's tests stay together


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
