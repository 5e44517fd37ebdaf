r"""A two-layer Bayesian neural network whose prior scales are learned.

w ~ N(0, e^{2 alpha})  (hidden x pixels),   v ~ N(0, e^{2 beta})  (classes x hidden)
label | w, v ~ Categorical(softmax(v tanh(w image)))    (no biases)
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax.models.densities import log_normal
from marginax.models.logistic_regression import ClassificationData
from marginax.typing import Key

__all__ = ["BayesianNetwork", "NetworkTheta", "NetworkWeights"]


class NetworkTheta(NamedTuple):
    """The learned prior scales.

    Attributes:
        alpha: log standard deviation of the first layer's weights.
        beta: log standard deviation of the second layer's weights.
    """

    alpha: Array
    beta: Array


class NetworkWeights(NamedTuple):
    """One network.

    Attributes:
        w: hidden x pixels.
        v: classes x hidden.
    """

    w: Array
    v: Array


class BayesianNetwork:
    """theta is a `NetworkTheta`, the latent a `NetworkWeights`, the data a `ClassificationData`."""

    @staticmethod
    def log_joint(
        theta: NetworkTheta, latent: NetworkWeights, data: ClassificationData
    ) -> Float[Array, ""]:
        """log p_theta(x, y)."""
        prior = jnp.sum(log_normal(latent.w, jnp.exp(2 * theta.alpha)))
        prior = prior + jnp.sum(log_normal(latent.v, jnp.exp(2 * theta.beta)))
        log_probabilities = BayesianNetwork.log_probabilities(latent, data.features)
        likelihood = jnp.take_along_axis(log_probabilities, data.labels[:, None], axis=1)
        return prior + jnp.sum(likelihood)

    @staticmethod
    def sample_prior(
        key: Key,
        theta: NetworkTheta,
        num_particles: int,
        *,
        num_features: int = 784,
        num_hidden: int = 40,
        num_classes: int = 2,
    ) -> NetworkWeights:
        """A cloud of networks drawn from the prior at theta, the usual start."""
        w_key, v_key = jax.random.split(key)
        w = jax.random.normal(w_key, (num_particles, num_hidden, num_features))
        v = jax.random.normal(v_key, (num_particles, num_classes, num_hidden))
        return NetworkWeights(jnp.exp(theta.alpha) * w, jnp.exp(theta.beta) * v)

    @staticmethod
    def predict(
        particles: NetworkWeights, features: Float[Array, "rows pixels"]
    ) -> Float[Array, "rows classes"]:
        """Class probabilities for every row, averaged over the cloud."""
        each = jax.vmap(lambda one: BayesianNetwork.log_probabilities(one, features))(particles)
        return jnp.mean(jnp.exp(each), axis=0)

    @staticmethod
    def log_probabilities(
        weights: NetworkWeights, features: Float[Array, "rows pixels"]
    ) -> Float[Array, "rows classes"]:
        """Of every class for every row, by one network."""
        return jax.nn.log_softmax(jnp.tanh(features @ weights.w.T) @ weights.v.T, axis=1)
