"""What the toy experiments share: the problem in both conventions, one sweep, summaries."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marginax.models import ToyHierarchical
from marginax.paper.columns import PUBLISHED, Method
from marginax.paper.measures import iterations, recorded_starts
from marginax.paper.sweep import Progress, sweep, thinned
from marginax.trajectory import trajectory

__all__ = ["CONVENTIONS", "over_trials", "toy_problem", "toy_runs"]

CONVENTIONS = {
    "12/12": (12.0, 12.0),
    "144/1": (144.0, 1.0),
}  # variances of x about theta, y about x


def toy_problem(dimension: int, trials: int) -> dict[str, np.ndarray]:
    """Observations for both conventions, and starts: the recorded ones, or drawn like them."""
    recorded = recorded_starts()
    keys = jax.random.split(jax.random.fold_in(jax.random.key(2026), dimension), 4)
    ys = [
        np.asarray(ToyHierarchical(*variances).simulate(key, 10.0, dimension))
        for key, variances in zip(keys, CONVENTIONS.values(), strict=False)
    ]
    if dimension == recorded["toy_y"].size and trials <= len(recorded["toy_theta"]):
        ys[0] = recorded["toy_y"].astype(ys[0].dtype)
        thetas, clouds = recorded["toy_theta"][:trials], recorded["toy_particles"][:trials]
    else:
        thetas = np.asarray(jax.random.uniform(keys[2], (trials,), minval=-3.0, maxval=3.0))
        clouds = np.asarray(jax.random.normal(keys[3], (trials, 20, dimension)))
    dtype = ys[1].dtype
    return {"y": np.stack(ys), "theta": thetas.astype(dtype), "particles": clouds.astype(dtype)}


def toy_runs(
    method: Method,
    settings: Mapping[str, Any],
    problem: Mapping[str, np.ndarray],
    num_steps: int,
    progress: Progress,
) -> dict[str, np.ndarray]:
    """All settings at once; what is kept of each run is small."""
    kept_steps = thinned(num_steps) - 1
    variances = np.array(list(CONVENTIONS.values()), problem["y"].dtype)

    def run(
        setting: Mapping[str, Any], problem: Mapping[str, Any], variances: jax.Array
    ) -> dict[str, jax.Array]:
        prior_variance, noise_variance = variances[setting["convention"]]
        model = ToyHierarchical(prior_variance, noise_variance)
        y, trial = problem["y"][setting["convention"]], setting["trial"]
        theta = problem["theta"][trial]
        end = trajectory(
            jax.random.fold_in(jax.random.key(7), trial),
            method.build(model.log_joint, setting),
            theta,
            problem["particles"][trial],
            y,
            num_steps,
        )
        exact = model.maximum_likelihood(y)
        # The released code counts its starting point as iterate 0.
        counted = end.history
        if method.column == PUBLISHED:
            counted = jnp.concatenate([theta[None], end.history[:-1]])
        kept = end.history[kept_steps]
        variance = jnp.mean(jnp.var(end.particles, axis=0))
        return {
            "theta": kept,
            "squared_error": (kept - exact) ** 2,
            "iterations": iterations(counted, exact),
            "variance_ratio": variance / model.posterior_variance,
        }

    typed = {
        name: np.asarray(value, problem["y"].dtype if value.dtype.kind == "f" else np.int32)
        for name, value in settings.items()
    }
    return sweep(run, typed, dict(problem), variances, progress=progress)


def over_trials(quantities: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Over the trials, which are axis 1."""
    theta = quantities["theta"]
    with np.errstate(over="ignore", invalid="ignore"):  # some settings diverge, which is a result
        return {
            "iterations": quantities["iterations"],
            "variance_ratio": quantities["variance_ratio"],
            "theta_mean": theta.mean(axis=1),
            "theta_low": theta.min(axis=1),
            "theta_high": theta.max(axis=1),
            "squared_error": quantities["squared_error"].mean(axis=1),
        }
