"""The paper's experiments on a two-layer Bayesian network (MNIST, 4 against 9).

As in the released code the log joint is divided by the number of training images in the columns
"as written" and "as published"; the column "marginax" has it whole. The weights start at draws from
the prior, with one key for both layers as the released code has it (they share no shape).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from marginax.models import (
    BayesianNetwork,
    ClassificationData,
    NetworkTheta,
    NetworkWeights,
    Split,
    error_rate,
    mnist_4_vs_9,
)
from marginax.reproduction import columns
from marginax.reproduction.columns import KERNELS, MARGINAX, PUBLISHED, WRITTEN, Method
from marginax.reproduction.results import Labelled, stack
from marginax.reproduction.sizes import NetworkSize
from marginax.reproduction.sweep import Progress, grid, sweep, thinned
from marginax.running.trajectories import trajectory
from marginax.typing import LogDensity

__all__ = [
    "network_clouds",
    "network_curves",
    "network_measures",
    "network_starts",
    "published_log_joint",
    "start",
]

MOMENTA = (0.0, 0.3, 0.5, 0.9)
STARTS = (0.0, 2.0)
HEAT_MOMENTA = (0.0, 0.3, 0.9)
FIRST_KEY = 102  # the released code's
MEASURES = ("error", "lppd", "mean_log", "alpha", "beta")
QUANTITIES = (*MEASURES, "error_sd", "lppd_sd")


class _Family(NamedTuple):
    method: Method
    momenta: tuple[float, ...] = ()
    detail: str = ""


def network_curves(size: NetworkSize, progress: Progress) -> dict[str, Labelled]:
    """Test error and predictive density against the step, from (0, 0) and (2, 2)."""
    families = [
        _Family(columns.stein_method(WRITTEN, kernel, adagrad), MOMENTA, f"accumulator {adagrad:g}")
        for kernel in KERNELS
        for adagrad in (0.1, 0.0)
    ]
    families += [_Family(columns.stein_method(PUBLISHED, k, 0.1), MOMENTA) for k in KERNELS]
    families.append(_Family(columns.marginax_network()))
    kept = _kept(size.num_steps)
    by_method: dict[str, dict[str, np.ndarray]] = {}
    for family in families:
        axes = {"start": STARTS, "trial": range(size.trials)}
        for label, values in _family_runs(family, axes, 10, size.num_steps, kept, progress):
            by_method[label] = _over_trials(values, axis=1)
    coords = {"start": STARTS, "step": tuple(int(t) for t in kept)}
    return stack(by_method, dict.fromkeys(QUANTITIES, ("start", "step")), coords)


def network_clouds(size: NetworkSize, progress: Progress) -> dict[str, Labelled]:
    """The same from (0, 0) for several numbers of particles, without momentum and with 0.9."""
    families = [
        _Family(columns.stein_method(column, "RBF", 0.1), (0.0, 0.9))
        for column in (WRITTEN, PUBLISHED)
    ]
    families.append(_Family(columns.marginax_network()))
    kept = _kept(size.num_steps)
    by_method: dict[str, list[dict[str, np.ndarray]]] = {}
    for family in families:
        for num_particles in size.clouds:
            axes = {"start": (0.0,), "trial": range(size.cloud_trials)}
            for label, values in _family_runs(
                family, axes, num_particles, size.num_steps, kept, progress
            ):
                by_method.setdefault(label, []).append(_over_trials(values[0], axis=0))
    stacked = {
        label: {name: np.stack([part[name] for part in parts]) for name in QUANTITIES}
        for label, parts in by_method.items()
    }
    coords = {"num_particles": size.clouds, "step": tuple(int(t) for t in kept)}
    return stack(stacked, dict.fromkeys(QUANTITIES, ("num_particles", "step")), coords)


def network_starts(size: NetworkSize, progress: Progress) -> dict[str, Labelled]:
    """Test error after the last step, over a grid of starting points (alpha, beta)."""
    families = [
        _Family(columns.stein_method(column, kernel, 0.1), HEAT_MOMENTA)
        for column in (WRITTEN, PUBLISHED)
        for kernel in KERNELS
    ]
    families.append(_Family(columns.marginax_network()))
    kept = np.array([size.num_steps])
    by_method: dict[str, dict[str, np.ndarray]] = {}
    for family in families:
        axes = {"alpha": size.starts, "beta": size.starts, "trial": (0,)}
        for label, values in _family_runs(family, axes, 10, size.num_steps, kept, progress):
            by_method[label] = {"error": values[:, :, 0, 0, 0]}
    return stack(
        by_method, {"error": ("alpha", "beta")}, {"alpha": size.starts, "beta": size.starts}
    )


def published_log_joint(
    theta: NetworkTheta, latent: NetworkWeights, data: ClassificationData
) -> jax.Array:
    """The released code's: e^{2 alpha} is a standard deviation, and everything is divided by n."""
    doubled = NetworkTheta(2 * theta.alpha, 2 * theta.beta)
    return written_log_joint(doubled, latent, data)


def written_log_joint(
    theta: NetworkTheta, latent: NetworkWeights, data: ClassificationData
) -> jax.Array:
    """The paper's model, divided by n as in its released code."""
    return BayesianNetwork.log_joint(theta, latent, data) / len(data.labels)


def start(
    key: jax.Array, alpha: jax.Array, beta: jax.Array, num_particles: int
) -> tuple[NetworkTheta, NetworkWeights]:
    """theta, and weights of standard deviation e^alpha and e^beta, both layers from one key."""
    w = jax.random.normal(key, (num_particles, 40, 784))
    v = jax.random.normal(key, (num_particles, 2, 40))
    return NetworkTheta(alpha, beta), NetworkWeights(jnp.exp(alpha) * w, jnp.exp(beta) * v)


def network_measures(test: ClassificationData, published: bool) -> Callable[[Any, Any], jax.Array]:
    """What is recorded after a step: test error, LPPD, mean of logs, alpha, beta.

    The released code classifies by the mean of the log probabilities over the particles, and calls
    the mean of those logs LPPD; elsewhere it is the log of the mean probability.
    """

    def record(state: Any, info: Any) -> jax.Array:
        del info
        each = jax.vmap(lambda one: BayesianNetwork.log_probabilities(one, test.features))(
            state.particles
        )
        logs = jnp.mean(each, axis=0)
        # In logs throughout: a sure network gives probabilities that are 0 in float32.
        log_mean = jax.nn.logsumexp(each, axis=0) - math.log(each.shape[0])
        voters = logs if published else log_mean
        theta = state.theta
        finite = jnp.all(jnp.isfinite(logs))
        return jnp.stack(
            [
                jnp.where(finite, error_rate(voters, test.labels), 0.5),
                _at_labels(log_mean, test.labels),
                _at_labels(logs, test.labels),
                theta.alpha,
                theta.beta,
            ]
        )

    return record


def _kept(num_steps: int) -> np.ndarray:
    """Steps to draw, the round ones among them."""
    return np.union1d(thinned(num_steps, 120), np.arange(100, num_steps + 1, 100))


def _at_labels(logs: jax.Array, labels: jax.Array) -> jax.Array:
    return jnp.mean(jnp.take_along_axis(logs, labels[:, None], axis=1))


def _over_trials(values: np.ndarray, axis: int) -> dict[str, np.ndarray]:
    """Means of all measures, and standard deviations of the two that are judged."""
    means, sds = values.mean(axis=axis), values.std(axis=axis)
    by_method = {name: means[..., i] for i, name in enumerate(MEASURES)}
    return by_method | {"error_sd": sds[..., 0], "lppd_sd": sds[..., 1]}


def _family_runs(
    family: _Family,
    axes: Mapping[str, Sequence[Any]],
    num_particles: int,
    num_steps: int,
    kept: np.ndarray,
    progress: Progress,
) -> list[tuple[str, np.ndarray]]:
    """For every momentum its label and measures, of the axes' shape x steps x measures."""
    method = family.method
    momenta = family.momenta or (0.0,)
    settings = grid(momentum=momenta, **axes)
    if "start" in settings:
        settings["alpha"] = settings["beta"] = settings.pop("start")
    settings["theta_momentum"] = settings["particle_momentum"] = settings.pop("momentum")
    settings["step_size"] = np.full(len(settings["trial"]), 0.1)
    log_joint: LogDensity = {
        WRITTEN: written_log_joint,
        PUBLISHED: published_log_joint,
        MARGINAX: BayesianNetwork.log_joint,
    }[method.column]

    def run(setting: Mapping[str, Any], data: Split) -> jax.Array:
        key = jax.random.key(FIRST_KEY + setting["trial"])
        theta, particles = start(key, setting["alpha"], setting["beta"], num_particles)
        record = network_measures(data.test, method.column == PUBLISHED)
        end = trajectory(
            method.build(log_joint, setting),
            theta,
            particles,
            data.train,
            num_steps,
            record=record,
            key=jax.random.key(0),
        )
        return end.history[kept - 1]

    typed = {
        name: jnp.asarray(value, float if value.dtype.kind == "f" else jnp.int32)
        for name, value in settings.items()
    }
    values = sweep(run, typed, mnist_4_vs_9(0), progress=progress)
    shape = (len(momenta), *(len(axis) for axis in axes.values()), len(kept), len(MEASURES))
    named = family.momenta or (None,)
    return [
        (method.label(momentum, family.detail), part)
        for momentum, part in zip(named, values.reshape(shape), strict=True)
    ]
