"""Kills a checkpointed run at random moments, resumes it, and compares it with one never killed.

As a script: `python tests/support/kill_and_resume.py --kills 20`. The test suite does a few kills.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CHILD = """
import os, sys
import jax, jax.numpy as jnp, numpy as np
import marginax as mx

jax.config.update("jax_enable_x64", True)
model = mx.models.ToyHierarchical(12.0, 12.0)
y = model.simulate(jax.random.key(0), 10.0, 20)
x = jax.random.normal(jax.random.key(1), (20, 20))
log_joint = mx.minibatched(
    lambda theta, x: -jnp.sum((x - theta) ** 2) / 24,
    lambda theta, x, batch: -((batch[:, 0] - x[batch[:, 1].astype(int)]) ** 2) / 24,
    num_data=20,
)
data = jnp.stack([y, jnp.arange(20.0)], axis=1)
method = mx.mpgd(log_joint, 0.05, 1.0, 10.0)
folder = None if sys.argv[1] == "-" else mx.Checkpoint(sys.argv[1], every_seconds=0.0)
run = mx.run(
    method, 0.0, x, data, key=jax.random.key(2), max_steps=int(sys.argv[3]),
    batch_size=5, block_size=50,
    stop=mx.stopping.averaged(1e-6), checkpoint=folder,
)
np.savez(sys.argv[2] + ".part.npz", theta=run.theta, particles=run.particles, history=run.history,
         num_steps=run.num_steps, momentum=run.state.particle_momentum)
os.replace(sys.argv[2] + ".part.npz", sys.argv[2])  # whole, or not there
"""


def start(folder, result, max_steps):
    command = [sys.executable, "-c", CHILD, str(folder), str(result), str(max_steps)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def timed(folder, result, max_steps):
    began = time.monotonic()
    assert start(folder, result, max_steps).wait() == 0
    return time.monotonic() - began


def kill_and_resume(kills, max_steps, seed=0):
    """Kills runs until so many kills have hit one; whether every run ended with the same numbers.

    One that came to its end before, because the machine had become quicker, is followed by another.
    """
    moments = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        startup = timed("-", place / "short.npz", 100)
        whole_seconds = timed("-", place / "whole.npz", max_steps)
        share = max(0.0, whole_seconds - startup) / kills
        whole = np.load(place / "whole.npz")
        hits, runs, identical = 0, 0, True
        while hits < kills:
            folder, result = place / f"checkpoints{runs}", place / f"killed{runs}.npz"
            while hits < kills and not result.exists():
                child = start(folder, result, max_steps)
                # From before the first checkpoint to well into this life's share of the run.
                wait = startup * moments.uniform(0.7, 1.0) + moments.random() * share
                try:
                    child.wait(timeout=wait)
                except subprocess.TimeoutExpired:
                    child.send_signal(signal.SIGKILL)
                    hits += 1
                child.wait()
            if not result.exists():
                timed(folder, result, max_steps)
            killed, runs = np.load(result), runs + 1
            identical &= all(np.array_equal(whole[name], killed[name]) for name in whole)
        return hits, runs, identical


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--max-steps", type=int, default=2_000_000)
    arguments = parser.parse_args()
    hits, runs, identical = kill_and_resume(arguments.kills, arguments.max_steps)
    print(f"killed {hits} times in {runs} run(s); identical to a run never killed: {identical}")
    sys.exit(not identical)
