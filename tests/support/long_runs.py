"""Compiling for programs that run longer than they are compiled."""

import jax

# Tests compile without optimisation, which takes least; a loop of thousands of steps is then three
# times as slow as with a little of it.
OPTIONS = {"xla_backend_optimization_level": 1}


def compiled(function):
    """`jax.jit` for long runs."""
    return jax.jit(function, compiler_options=OPTIONS)
