"""What the logistic experiments share: a trajectory, the exact answers, typed settings."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marginax.models import LogisticRegression, wisconsin
from marginax.reproduction import columns
from marginax.reproduction.columns import KERNELS, PUBLISHED, WRITTEN, Method
from marginax.reproduction.exact_logistic import exact_logistic
from marginax.reproduction.results import Labelled, stack
from marginax.reproduction.sizes import LogisticSize
from marginax.reproduction.sweep import Progress, grid, iterations, recorded_starts, sweep, thinned
from marginax.running.trajectories import trajectory

__all__ = [
    "PRIOR_VARIANCES",
    "SPLIT",
    "exact_answers",
    "fixed",
    "logistic_methods",
    "logistic_mpgd_tuning",
    "logistic_trajectory",
    "typed",
]

PRIOR_VARIANCES = (25.0, 5.0)
SPLIT = 45  # the released code's random_state


def logistic_trajectory(
    method: Method,
    setting: Mapping[str, Any],
    cloud: jax.Array,
    data: Any,
    num_steps: int,
    record: Any = None,
) -> Any:
    """From theta = 0 and the given cloud; noise by the setting's trial or seed."""
    model = LogisticRegression(setting["prior_variance"])
    algorithm = method.build(model.log_joint, setting)
    key = jax.random.fold_in(jax.random.key(13), setting.get("trial", setting.get("seed", 0)))
    theta = jnp.zeros((), cloud.dtype)
    extra = {} if record is None else {"record": record}
    return trajectory(algorithm, theta, cloud, data, num_steps, key=key, **extra)


def exact_answers(size: LogisticSize, data: Any) -> dict[str, Labelled]:
    """The marginal estimate, its Monte Carlo error, the joint mode, draws from the posterior."""
    answers = [
        exact_logistic(data.features, data.labels, variance, size.exact_draws)
        for variance in PRIOR_VARIANCES
    ]
    priors = {"prior_variance": PRIOR_VARIANCES}
    draws = np.stack([answer.draws for answer in answers])
    return {
        "exact": Labelled(np.array([a.theta for a in answers]), ("prior_variance",), priors),
        "exact_se": Labelled(
            np.array([a.standard_error for a in answers]), ("prior_variance",), priors
        ),
        "joint_mode": Labelled(
            np.array([a.joint_mode for a in answers]), ("prior_variance",), priors
        ),
        "posterior_draws": Labelled(
            draws.astype(np.float32),
            ("prior_variance", "draw", "weight"),
            priors | {"draw": tuple(range(draws.shape[1])), "weight": tuple(range(1, 10))},
        ),
    }


def fixed(settings: Mapping[str, np.ndarray], **numbers: float) -> dict[str, np.ndarray]:
    """Numbers that are the same for all settings."""
    length = len(next(iter(settings.values())))
    return {name: np.full(length, number) for name, number in numbers.items()}


def typed(settings: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Floats in JAX's default float, so that the data decide nothing by accident."""
    return {
        name: jnp.asarray(value, float if value.dtype.kind == "f" else jnp.int32)
        for name, value in settings.items()
    }


MOMENTA = (0.0, 0.3, 0.5, 0.9)
MPGD = {"friction": 0.3, "inverse_mass": 300.0}


def logistic_methods(size: LogisticSize, progress: Progress) -> dict[str, Labelled]:
    """All methods from the recorded start: paths of theta, clouds after T steps, where it ends."""
    data = wisconsin(SPLIT).train
    cloud = recorded_starts()["logistic_particles"].astype(data.features.dtype)
    answers = exact_answers(size, data)
    pgd, mpgd, soul = columns.langevin_methods(WRITTEN)
    _, mpgd_published, soul_published = columns.langevin_methods(PUBLISHED)
    families: list[tuple[Method, tuple[float, ...]]] = [
        (columns.stein_method(column, kernel), MOMENTA)
        for kernel in KERNELS
        for column in (WRITTEN, PUBLISHED)
    ]
    families += [(method, ()) for method in (pgd, mpgd, soul, mpgd_published, soul_published)]
    families += [(columns.marginax_default("whole"), ())]
    by_method: dict[str, dict[str, np.ndarray]] = {}
    for method, momenta in families:
        settings = grid(prior_variance=PRIOR_VARIANCES, momentum=momenta or (0.0,))
        settings["theta_momentum"] = settings["particle_momentum"] = settings.pop("momentum")
        settings |= fixed(settings, step_size=0.01, **MPGD)
        settings["exact"] = _by_prior(answers["exact"], settings)
        short = _paths(method, settings, cloud, data, size.num_steps, progress)
        long = short
        if size.long_steps != size.num_steps:
            long = _paths(method, settings, cloud, data, size.long_steps, progress)
        for i, momentum in enumerate(momenta or (None,)):
            rows = slice(i, None, len(momenta) or 1)  # one per prior
            # A Langevin theta fluctuates; its estimate is the mean over the second half.
            end = "half_mean" if method.name in ("PGD", "MPGD", "SOUL") else "last"
            by_method[method.label(momentum)] = {
                "theta": short["theta"][rows],
                "particles": short["particles"][rows],
                "end": long[end][rows],
                "iterations": short["iterations"][rows],
            }
    coords = {
        "prior_variance": PRIOR_VARIANCES,
        "step": tuple(int(t) for t in thinned(size.num_steps)),
        "particle": tuple(range(len(cloud))),
        "weight": tuple(range(1, 10)),
    }
    dims = {
        "theta": ("prior_variance", "step"),
        "particles": ("prior_variance", "particle", "weight"),
        "end": ("prior_variance",),
        "iterations": ("prior_variance",),
    }
    return stack(by_method, dims, coords) | answers


def logistic_mpgd_tuning(size: LogisticSize, progress: Progress) -> dict[str, Labelled]:
    """MPGD over friction and momentum at step 0.01: steps until 0.05 from the exact theta."""
    data = wisconsin(SPLIT).train
    exact = exact_answers(size, data)["exact"]
    clouds = jax.random.normal(jax.random.key(12), (size.tuning_trials, 20, 9))
    by_method = {}
    for column in (WRITTEN, PUBLISHED):
        _, method, _ = columns.langevin_methods(column)
        settings = grid(
            prior_variance=PRIOR_VARIANCES,
            friction=size.frictions,
            mu=size.momenta,
            trial=range(size.tuning_trials),
        )
        settings |= fixed(settings, step_size=0.01)
        mu = settings.pop("mu")
        settings["inverse_mass"] = (1 - mu) / (0.01 * settings["friction"])
        settings["exact"] = _by_prior(exact, settings)

        def run(
            setting: Mapping[str, Any], clouds: jax.Array, data: Any, method: Method = method
        ) -> dict[str, jax.Array]:
            cloud = clouds[setting["trial"]]
            history = logistic_trajectory(method, setting, cloud, data, size.num_steps).history
            count = iterations(history, setting["exact"])
            return {"iterations": count, "arrived": count < size.num_steps}

        result = sweep(run, typed(settings), clouds, data, progress=progress)
        shape = 2, len(size.frictions), len(size.momenta), size.tuning_trials
        by_method[method.label()] = {
            name: value.reshape(shape).mean(axis=-1) for name, value in result.items()
        }
    dims = ("prior_variance", "friction", "momentum")
    coords = {
        "prior_variance": PRIOR_VARIANCES,
        "friction": size.frictions,
        "momentum": size.momenta,
    }
    return stack(by_method, {"iterations": dims, "arrived": dims}, coords)


def _paths(
    method: Method,
    settings: Mapping[str, Any],
    cloud: np.ndarray,
    data: Any,
    num_steps: int,
    progress: Progress,
) -> dict[str, np.ndarray]:
    kept = thinned(num_steps) - 1

    def run(setting: Mapping[str, Any], cloud: jax.Array, data: Any) -> dict[str, jax.Array]:
        end = logistic_trajectory(method, setting, cloud, data, num_steps)
        counted = end.history
        if method.column == PUBLISHED:  # its starting point, theta = 0, is iterate 0
            counted = jnp.concatenate([jnp.zeros_like(counted[:1]), counted[:-1]])
        return {
            "theta": end.history[kept],
            "last": end.history[-1],
            "iterations": iterations(counted, setting["exact"]),
            "half_mean": jnp.mean(end.history[num_steps // 2 :]),
            "particles": end.particles,
        }

    return sweep(run, typed(settings), cloud, data, progress=progress)


def _by_prior(exact: Labelled, settings: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.array([exact.at(prior_variance=v).item() for v in settings["prior_variance"]])
