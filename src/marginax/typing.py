"""The words for arguments: what theta, a latent, a cloud of particles, data and a density are."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

__all__ = ["Count", "Data", "Key", "Latent", "LogDensity", "Particles", "Theta"]

Key: TypeAlias = PRNGKeyArray
Theta: TypeAlias = PyTree  # floating-point leaves, unconstrained reals
Latent: TypeAlias = PyTree  # one configuration x of the latent variables
Particles: TypeAlias = PyTree  # the cloud: a Latent whose every leaf has a leading axis of length N
Data: TypeAlias = PyTree  # arrays that log_joint wants as its third argument; None if nothing
Count: TypeAlias = int | np.integer  # checked by `check_count`
# log p_theta(x, y) of ONE latent, a scalar: a function of yours, or a `LogJoint`.
LogDensity: TypeAlias = Callable[[Theta, Latent, Data], Array]
