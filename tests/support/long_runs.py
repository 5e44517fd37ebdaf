"""Compiling for programs that run longer than they are compiled."""

import jax

# Tests compile without optimisation, which takes least; a loop of thousands of steps is then three
# times as slow as with a little of it.
OPTIONS = {"xla_backend_optimization_level": 1}


def compiled(function):
    """`jax.jit` for long runs."""
    return jax.jit(function, compiler_options=OPTIONS)


def compile_ahead_optimized(monkeypatch):
    """The same for what the package lowers and compiles itself, as sweeps of the paper are."""
    plain = jax.stages.Lowered.compile
    monkeypatch.setattr(jax.stages.Lowered, "compile", lambda lowered: plain(lowered, OPTIONS))
