"""Whether a change of the code has changed its numbers: records them, and compares two recordings.

    python -m benchmarks.numbers --write before.npz
    python -m benchmarks.numbers --write after.npz --compare before.npz

The final theta and particles of every algorithm (`trajectory`, 50 steps, float64), of the
tuning-free configuration on a grouped model, and the fits of four models. On one machine
trajectories of equal code are equal bit for bit, and fits to 1e-12.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
FITS = ("slopes", "crossed", "gamma-poisson", "logistic")


def main() -> int:
    """Reads the command line; the exit status is 1 where numbers differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, required=True, metavar="FILE.npz")
    parser.add_argument("--compare", type=Path, metavar="FILE.npz")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    numbers = recorded()
    np.savez(arguments.write, **numbers)
    print(f"{len(numbers)} arrays in {arguments.write}")
    if arguments.compare is None:
        return 0
    with np.load(arguments.compare) as before:
        return compared(dict(before), numbers)


def recorded() -> dict[str, np.ndarray]:
    """All numbers, by name."""
    return _trajectories() | _fits()


def compared(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> int:
    """Prints what differs, and returns 1 if a trajectory does, or a fit by more than 1e-12."""
    bad = sorted(before.keys() ^ after.keys())
    largest = 0.0
    for name in before.keys() & after.keys():
        if name.startswith("trajectory."):
            if not np.array_equal(before[name], after[name]):
                bad.append(name)
            continue
        scale = np.maximum(1.0, np.abs(before[name]))
        difference = float(np.max(np.abs(after[name] - before[name]) / scale, initial=0.0))
        # The cloud is where the loose tolerance of its run left it; what is reported is sharp.
        if ".particles." not in name:
            largest = max(largest, difference)
        if difference > 1e-12:
            print(f"{name}: {difference:.1e}")
            bad += [] if ".particles." in name else [name]
    exact = sum(name.startswith("trajectory.") for name in before)
    print(f"{exact} arrays of trajectories compared bit for bit; fits differ by {largest:.1e}")
    print("differ: " + ", ".join(bad) if bad else "no number has changed")
    return int(bool(bad))


def _leaves(name: str, tree: Any) -> dict[str, np.ndarray]:
    return {f"{name}.{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}


def _trajectories() -> dict[str, np.ndarray]:
    from every_algorithm import ALGORITHMS, log_joint, start
    from fit_models import CASES

    import marginax as mx

    numbers = {}
    theta, particles, data = start()
    for name, make in ALGORITHMS.items():
        method = make(log_joint, 0.05)
        end = mx.trajectory(method, theta, particles, data, 50, key=jax.random.key(7))
        numbers |= _leaves(f"trajectory.{name}", (end.theta, end.particles))
    problem = CASES["slopes"](3).problem
    method = mx.tuning_free(problem.unconstrained_log_joint)
    cloud = jax.random.normal(jax.random.key(1), (40, 25, 2))
    end = mx.trajectory(
        method, problem.start_theta(), cloud, problem.data, 50, key=jax.random.key(7)
    )
    return numbers | _leaves("trajectory.tuning_free", (end.theta, end.particles))


def _fits() -> dict[str, np.ndarray]:
    from fit_models import CASES

    import marginax as mx

    numbers = {}
    for name in FITS:
        fit = mx.fit(CASES[name](3).problem, key=jax.random.key(0))
        effects = fit.random_effects()
        numbers |= {
            f"fit.{name}.theta": fit.estimates,
            f"fit.{name}.errors": fit.standard_errors,
            f"fit.{name}.log_likelihood": np.array(fit.log_likelihood),
            **_leaves(f"fit.{name}.latents", (effects.mean, effects.sd)),
            **_leaves(f"fit.{name}.particles", fit.particles),
        }
    return numbers


if __name__ == "__main__":
    sys.exit(main())
