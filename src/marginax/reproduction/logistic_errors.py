"""The paper's experiments on how well the logistic regression predicts."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marginax.models import LogisticRegression, Split, error_rate, wisconsin
from marginax.reproduction import columns
from marginax.reproduction.columns import KERNELS, PUBLISHED, WRITTEN, Method
from marginax.reproduction.logistic import PRIOR_VARIANCES, SPLIT, fixed, logistic_trajectory, typed
from marginax.reproduction.results import Labelled, stack
from marginax.reproduction.sizes import LogisticSize
from marginax.reproduction.sweep import Progress, grid, sweep

__all__ = ["logistic_learning_rates", "logistic_test_error"]

MOMENTA, STEPS = (0.0, 0.3, 0.5, 0.7, 0.9), (50, 100, 150, 200, 250)


def logistic_test_error(size: LogisticSize, progress: Progress) -> dict[str, Labelled]:
    """Test error after 50 to 250 steps of 1e-5 against momentum, over splits of the data."""
    splits = [wisconsin(seed) for seed in range(size.splits)]
    data = jax.tree.map(lambda *parts: jnp.stack(parts), *splits)
    clouds = jax.random.normal(jax.random.key(11), (size.splits, 20, 9))
    methods = [columns.stein_method(c, k) for k in KERNELS for c in (WRITTEN, PUBLISHED)]
    methods.append(columns.marginax_default("whole"))
    by_method = {}
    for method in methods:
        momenta = MOMENTA if method.kernel else (0.0,)
        settings = grid(prior_variance=PRIOR_VARIANCES, momentum=momenta, split=range(size.splits))
        settings["theta_momentum"] = settings["particle_momentum"] = settings.pop("momentum")
        settings |= fixed(settings, step_size=1e-5)

        def run(
            setting: Mapping[str, Any], clouds: jax.Array, data: Split, method: Method = method
        ) -> jax.Array:
            split = jax.tree.map(lambda leaf: leaf[setting["split"]], data)
            end = logistic_trajectory(
                method,
                setting,
                clouds[setting["split"]],
                split.train,
                STEPS[-1],
                lambda state, _: _error(state.particles, split),
            )
            return end.history[np.array(STEPS) - 1]

        errors = sweep(run, typed(settings), clouds, data, progress=progress)
        errors = errors.reshape(2, len(momenta), size.splits, len(STEPS))
        errors = np.broadcast_to(errors, (2, len(MOMENTA), size.splits, len(STEPS)))
        by_method[method.label()] = {"error": errors.mean(axis=2), "error_sd": errors.std(axis=2)}
    dims = ("prior_variance", "momentum", "step")
    coords = {"prior_variance": PRIOR_VARIANCES, "momentum": MOMENTA, "step": STEPS}
    return stack(by_method, {"error": dims, "error_sd": dims}, coords)


def logistic_learning_rates(size: LogisticSize, progress: Progress) -> dict[str, Labelled]:
    """Test error after T steps against the step size, for several numbers of particles."""
    split = wisconsin(SPLIT)
    step_sizes = np.geomspace(1e-7, 1e2, size.step_sizes)
    pgd, _, _ = columns.langevin_methods(WRITTEN)
    families: list[tuple[Method, tuple[float, ...]]] = [
        (columns.stein_method(WRITTEN, kernel), (0.0, 0.9)) for kernel in KERNELS
    ]
    families += [(columns.stein_method(PUBLISHED, "RBF"), (0.0, 0.9)), (pgd, ())]
    by_method: dict[str, list[np.ndarray]] = {}
    for num_particles in size.clouds:
        clouds = jax.random.normal(
            jax.random.key(num_particles), (size.step_size_seeds, num_particles, 9)
        )
        for method, momenta in families:
            settings = grid(
                momentum=momenta or (0.0,),
                prior_variance=PRIOR_VARIANCES,
                seed=range(size.step_size_seeds),
                step_size=step_sizes,
            )
            settings["theta_momentum"] = settings["particle_momentum"] = settings.pop("momentum")

            def run(
                setting: Mapping[str, Any], clouds: jax.Array, split: Split, method: Method = method
            ) -> jax.Array:
                cloud = clouds[setting["seed"]]
                end = logistic_trajectory(method, setting, cloud, split.train, size.step_size_steps)
                return _error(end.particles, split)

            errors = sweep(run, typed(settings), clouds, split, progress=progress)
            shape = -1, 2, size.step_size_seeds, size.step_sizes
            for momentum, error in zip(momenta or (None,), errors.reshape(shape), strict=True):
                by_method.setdefault(method.label(momentum), []).append(error.mean(axis=1))
    coords = {
        "num_particles": size.clouds,
        "prior_variance": PRIOR_VARIANCES,
        "step_size": tuple(float(value) for value in step_sizes),
    }
    stacked = {label: {"error": np.stack(parts)} for label, parts in by_method.items()}
    return stack(stacked, {"error": ("num_particles", "prior_variance", "step_size")}, coords)


def _error(particles: jax.Array, split: Split) -> jax.Array:
    """Test error. A cloud that is no longer finite knows nothing: one half."""
    wrong = error_rate(
        LogisticRegression.predict(particles, split.test.features), split.test.labels
    )
    return jnp.where(jnp.all(jnp.isfinite(particles)), wrong, 0.5)
