"""What the logistic experiments share: a trajectory, the exact answers, typed settings."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marginax.models import LogisticRegression
from marginax.paper.columns import Method
from marginax.paper.exact_logistic import exact_logistic
from marginax.paper.labelled import Labelled
from marginax.paper.sizes import LogisticSize
from marginax.trajectory import trajectory

__all__ = ["PRIOR_VARIANCES", "SPLIT", "exact_answers", "fixed", "logistic_trajectory", "typed"]

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
    return trajectory(key, algorithm, theta, cloud, data, num_steps, **extra)


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
