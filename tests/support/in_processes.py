"""Runs one process of a sharded `run`; as a script, started by `test_two_processes`.

    python in_processes.py PORT INDEX COUNT FOLDER RESULT MAX_STEPS MESH SECONDS_PER_BLOCK

COUNT processes with 4 / COUNT devices each; "-" for a folder, a result or a mesh that is not
wanted. Process 0 writes the result.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

PORT, INDEX, COUNT, FOLDER, RESULT, MAX_STEPS, MESH, SECONDS = sys.argv[1:]
HEARTBEAT = 10  # seconds without a sign of life after which a process counts as lost

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 4 // int(COUNT))
if int(COUNT) > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        f"127.0.0.1:{PORT}",
        int(COUNT),
        int(INDEX),
        initialization_timeout=60,
        heartbeat_timeout_seconds=HEARTBEAT,
        shutdown_timeout_seconds=30,
        coordinator_bind_address=f"127.0.0.1:{PORT}",
    )

import marginax as mx  # noqa: E402
from marginax._core.processes import whole  # noqa: E402

MESHES = {
    "particles": ((4,), ("particles",)),
    "groups": ((4,), ("groups",)),
    "both": ((2, 2), ("particles", "groups")),
}


def log_joint(theta, x, y):
    return -0.5 * (x - theta) ** 2 - 0.5 * jnp.sum((y - x) ** 2)


def main():
    numbers = np.random.default_rng(0)
    y = numbers.normal(size=(8, 3)) + np.arange(8.0)[:, None] / 4
    problem = mx.Problem.grouped(log_joint, y, theta=0.0, latent=0.0)
    method = mx.m_svgd_em(problem.unconstrained_log_joint, 0.005, 0.05, mx.kernels.rbf("median"))

    def slow_down(report):
        if float(SECONDS):
            print(report.num_steps, flush=True)
            time.sleep(float(SECONDS))

    run = mx.run(
        method,
        problem.start_theta(),
        numbers.normal(size=(12, 8)),
        y,
        max_steps=int(MAX_STEPS),
        block_size=10,
        stop=mx.stopping.never(),
        record=lambda state, info: state.particles,  # spread over the processes, and yet kept
        callback=slow_down,
        progress=True,
        checkpoint=None if FOLDER == "-" else mx.Checkpoint(FOLDER, every_seconds=0.0),
        mesh=None if MESH == "-" else jax.make_mesh(*MESHES[MESH]),
        key=jax.random.key(2),
    )
    leaves = [whole(leaf) for leaf in jax.tree.leaves(run.state)]
    specs = [str(getattr(leaf.sharding, "spec", "")) for leaf in jax.tree.leaves(run.state)]
    if jax.process_index() == 0 and RESULT != "-":
        np.savez(
            RESULT,
            *leaves,
            specs=specs,
            history=np.asarray(run.history),
            num_steps=run.num_steps,
            verdict=run.cloud_check.verdict,
        )
    print("done", run.status, flush=True)


if __name__ == "__main__":
    main()
