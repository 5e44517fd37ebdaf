r"""Priors whose constant is not known: p_theta(x) = exp(-E_theta(x)) / Z(theta).

The constant depends on theta, and its gradient is an expectation under the prior itself:

    grad_theta log p_theta(y) = E[-grad_theta E_theta(x) + grad_theta log p_theta(y | x) | y]
                                + n E[grad_theta E_theta(z)],       z from the prior

with n the number of independent x that share Z. So a second cloud, z, samples the prior beside x,
and enters theta's direction with the opposite sign. `unnormalized_prior` writes this as one log
joint of the pair (x, z) whose first derivatives are those above, so that every method which climbs
by gradients takes it as it is: the pair's density at a fixed theta is that of x given y times that
of z, which are independent.

References:
    Pang, Han, Nijkamp, Zhu and Wu (2020), Learning latent space energy-based prior model, NeurIPS.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from marginax._core.checks import check_count
from marginax.model.log_joint import LogJoint
from marginax.typing import Count, Data, Latent, Theta

__all__ = ["WithPrior", "unnormalized_prior"]


class WithPrior(NamedTuple):
    """What the particles of a model with an unnormalised prior are.

    Attributes:
        latent: x, whose law is the posterior.
        prior: z, one draw of the prior, whose law is the prior.
    """

    latent: Any
    prior: Any


def unnormalized_prior(
    energy: Callable[[Theta, Latent], Array],
    log_likelihood: Callable[[Theta, Latent, Data], Array],
    *,
    num_rows: Count | None = None,
) -> LogJoint:
    """The log joint of a model with a prior proportional to exp(-energy(theta, x)).

    Its particles are pairs, `WithPrior(latent, prior)`; give both clouds a start. One kernel over
    the pair works; `kernels.blockwise(kernel, "leaves")` spares each cloud the other's distances.

    Args:
        energy: `energy(theta, x)` of ONE draw x of the prior, a number; exp(-energy) must have a
            finite integral over x for every theta.
        log_likelihood: `log_likelihood(theta, latent, data)`, log p_theta(y | x), with all of the
            latent and its constants.
        num_rows: if the latent's leaves have a leading axis of this many independent draws of the
            prior, which share its constant: `prior` in the pair is then one draw, without that
            axis. By default the latent is one draw.

    Returns:
        A log joint for `pgd`, `svgd_em`, `m_svgd_em` and all others that take first derivatives.
        Those that need values at different theta or second derivatives in it (`fit`, `pqn`,
        `em_gradient`, `jala_em`) refuse it.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def energy(theta, x):  # a normal with precision exp(theta), without its constant
        ...     return 0.5 * jnp.exp(theta) * x**2
        >>> def log_likelihood(theta, x, y):
        ...     return -0.5 * jnp.sum((y - x) ** 2)
        >>> y = 2.0 * jax.random.normal(jax.random.key(0), (200,))
        >>> density = mx.unnormalized_prior(energy, log_likelihood, num_rows=200)
        >>> keys = jax.random.split(jax.random.key(1))
        >>> start = mx.WithPrior(
        ...     jax.random.normal(keys[0], (100, 200)), jax.random.normal(keys[1], (100,))
        ... )
        >>> method = mx.pgd(density, 1e-3, 0.1)
        >>> end = mx.trajectory(method, 0.0, start, y, 2000, key=jax.random.key(2))
        >>> exact = -jnp.log(jnp.mean(y**2) - 1)  # the variance of y is exp(-theta) + 1
        >>> bool(abs(end.history[1000:].mean() - exact) < 0.1)
        True
    """
    count = 1 if num_rows is None else check_count(num_rows, "num_rows")

    def log_joint(theta: Theta, pair: Any, data: Data) -> Array:
        _check_pair(pair, num_rows)
        latent, prior = pair
        if num_rows is None:
            of_latent = energy(theta, latent)
        else:
            of_latent = jnp.sum(jax.vmap(lambda x: energy(theta, x))(latent))
        held = jax.lax.stop_gradient
        # At a fixed theta z has the density exp(-E); its gradient in theta is not wanted here,
        at_prior = energy(jax.tree.map(held, theta), prior)
        # but n times with the other sign, and of the value 0.
        of_constant = energy(theta, jax.tree.map(held, prior))
        return (
            log_likelihood(theta, latent, data)
            - of_latent
            - at_prior
            + count * (of_constant - held(of_constant))
        )

    return LogJoint(log_joint, first_derivatives_only=True)


def _check_pair(pair: Any, num_rows: Count | None) -> None:
    if not isinstance(pair, WithPrior):
        raise TypeError(
            f"The latent of a model with an unnormalised prior is {type(pair).__name__}, but it "
            "must be a pair: give the particles as `WithPrior(latent, prior)`, two clouds of the "
            "same number of particles."
        )
    row = [leaf.shape for leaf in jax.tree.leaves(pair.prior)]
    axes = () if num_rows is None else (int(num_rows),)
    shapes = [leaf.shape for leaf in jax.tree.leaves(pair.latent)]
    if shapes != [axes + shape for shape in row]:
        raise ValueError(
            f"One latent has the shapes {shapes} and one draw of its prior {row}, but the latent "
            + ("must have the same." if num_rows is None else f"must have {num_rows} of these.")
        )
