"""Compiled programs are shared while they are recent, and given back with what they hold."""

import gc
import subprocess
import sys
import weakref

import jax
import jax.numpy as jnp
import pytest

import marginax as mx
from marginax._core import at_start, programs
from marginax._core.programs import KEPT, recent
from marginax.diagnostics.cloud import measure
from marginax.running import steps


def test_recent_programs_are_kept_and_others_are_not():
    traces = []

    def scaled(factor, x):
        traces.append(factor)
        return factor * x

    program = recent(scaled)
    assert program(2.0)(jnp.array(3.0)) == 6.0
    assert program(2.0)(jnp.array(4.0)) == 8.0
    assert traces == [2.0]
    for factor in range(KEPT):
        program(float(factor + 10))(jnp.array(1.0))
    program(2.0)(jnp.array(5.0))
    assert traces.count(2.0) == 2


@pytest.mark.slow
def test_a_run_leaves_nothing_of_a_model_but_its_recent_programs():
    # The bug: jit keeps its static arguments for good, so that some hundred models in one process
    # used up the memory maps that a process may have, and the compiler crashed.
    def one_run():
        def log_joint(theta, x, y):
            return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)

        x = jax.random.normal(jax.random.key(0), (5, 2))
        method = mx.m_svgd_em(log_joint, 0.1, 0.1, mx.kernels.rbf(1.0))
        mx.run(method, 0.0, x, jnp.ones(2), max_steps=10, key=jax.random.key(1))
        return weakref.ref(log_joint)

    left = one_run()
    for kept in (steps.advance, at_start._compiled, measure):
        kept.cache_clear()
    gc.collect()
    assert left() is None


def test_options_that_xla_does_not_have_are_left_out(monkeypatch):
    """One was gone in a newer JAX, and every fit ended with its error."""
    known = programs.QUICK | {"xla_an_option_of_tomorrow": True}
    monkeypatch.setattr(programs, "QUICK", known)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    programs._known_options.cache_clear()
    try:
        assert "xla_backend_optimization_level" in programs._quick_options()
        assert "xla_an_option_of_tomorrow" not in programs._quick_options()
        assert programs.Program(lambda x: 2 * x, None)(jnp.ones(())) == 2
    finally:
        programs._known_options.cache_clear()


def test_options_are_asked_for_when_a_program_is_called():
    """Not on import, which would take the devices before `jax.distributed` can."""
    code = (
        "import marginax; from jax._src import xla_bridge; "
        "print(xla_bridge.backends_are_initialized())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
