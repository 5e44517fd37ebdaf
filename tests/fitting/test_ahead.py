"""What is compiled ahead ends with the fit that asked for it."""

import threading
import time

import jax.numpy as jnp

import marginax as mx
from marginax.fitting import ahead
from marginax.fitting.plan import make_plan


def test_nothing_goes_on_after_a_fit(monkeypatch):
    """What has begun is waited for, because it runs the model; what has not is left out."""
    problem = mx.Problem(lambda theta, x, y: -jnp.sum((x - theta) ** 2), 0.0, jnp.zeros(2), None)
    plan, begun, drawn = make_plan(problem, None, None), [], []

    def particles(problem, plan):
        begun.append(problem)
        time.sleep(0.3)

    monkeypatch.setattr(ahead, "_particles", particles)
    monkeypatch.setattr(ahead, "prepare_draws", drawn.append)
    with ahead.nothing_goes_on():
        ahead.compile_ahead(problem, plan, draws=True)
        while not begun:
            time.sleep(0.01)
    running = [thread.name for thread in threading.enumerate()]
    assert "marginax compiles ahead" not in running
    assert (begun, drawn) == ([problem], [])
