r"""The tuning-free M-SVGD-EM: one configuration with no step size, for any model and any units.

    theta       Newton's step of the M-step (`em_gradient`); AdaGrad where theta is very large
    particles   the Stein flow of a moment-matched kernel, block by block, in the curvature of each
                block (`metrics.curvature`), with steps of one quarter
    momentum    grows until it carries an iterate downhill, then starts again, for both

It is what `fit` runs. Steps depend on the shape of the posterior and not on its units, so that
nothing is left to tune; blocks must be independent given theta and the data.
"""

from typing import Any

import jax
import optax

from marginax._core.partition import BlockSpec, check_blocks
from marginax.algorithms._m_svgd_em import m_svgd_em
from marginax.algorithms.contract import Algorithm
from marginax.flows import metrics, momentum
from marginax.flows.m_step import LARGEST_THETA, em_gradient
from marginax.flows.optimizers import Optimizer
from marginax.kernels import Kernel, blockwise, moment_matched, rbf
from marginax.model.log_joint import as_log_joint
from marginax.model.structure import Structure
from marginax.typing import LogDensity, Theta

__all__ = ["LARGEST_DENSE", "tuning_free"]

LARGEST_DENSE = 150  # latents that are moved in their own dense curvature
# Of the posterior's own units. With momentum one half swings, and may run away, where posteriors
# have one steep side: binary data of few rows a group with a large random effect.
STEP_SIZE = 0.25
# theta's second derivatives cost as many gradients as it has numbers: beyond this many they are
# taken over few particles.
MANY_PARAMETERS, FEW_FOR_CURVATURE = 12, 4


def tuning_free(
    log_joint: LogDensity,
    *,
    blocks: BlockSpec | None = None,
    kernel: Kernel | None = None,
    theta_optimizer: Optimizer | None = None,
    batches: bool = False,
    structure: Structure | None = None,
) -> Algorithm:
    """M-SVGD-EM with nothing to tune, as `fit` uses it.

    Args:
        log_joint: `log_joint(theta, latent, data)`, the log density of one latent and the data, on
            the reals: a function, or `Problem.unconstrained_log_joint`.
        blocks: the blocks of the latent that are independent given theta and the data, as for
            `kernels.blockwise`; by default those the log joint knows of, or the whole latent as
            one. A block needs fewer numbers than there are particles.
        kernel: another kernel than the moment-matched one, with blocks of its own.
        theta_optimizer: instead of the EM gradient; `optax.set_to_zero()` holds theta.
        batches: for `run(..., batch_size=...)` with batches of groups: every group then keeps a
            momentum of its own, and theta, which sees another batch at every step, has none.
        structure: `structure_of(problem)`, for one large block of latents with sparse curvature, in
            whose units particles then move latent by latent.

    Returns:
        The algorithm. It is deterministic, so the keys are not used.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)
        >>> y, x0 = jnp.array([1.0, 2.0, 3.0]), jax.random.normal(jax.random.key(0), (10, 3))
        >>> method = mx.tuning_free(log_joint, blocks="leading")
        >>> end = mx.trajectory(method, 0.0, x0, y, 60, key=jax.random.key(1))
        >>> round(float(end.theta), 4)  # the maximum likelihood estimate is the mean of y
        2.0
    """
    if structure is not None and blocks is None:
        blocks = "coordinates"
    if kernel is None:
        blocks = as_log_joint(log_joint).blocks if blocks is None else check_blocks(blocks)
        kernel = blockwise(moment_matched(rbf("mean")), blocks)
    elif blocks is not None:
        raise ValueError(
            f"blocks is {blocks!r} and kernel is {kernel!r}, which has blocks of its own. Give one "
            "of them: `kernels.blockwise(kernel, blocks)` makes a kernel of both."
        )
    restart = momentum.adaptive_restart()
    return m_svgd_em(
        log_joint,
        _by_size() if theta_optimizer is None else theta_optimizer,
        STEP_SIZE,
        kernel,
        theta_momentum=0.0 if batches else restart,
        particle_momentum=momentum.per_group(restart) if batches else restart,
        particle_metric=metrics.curvature(largest_block=LARGEST_DENSE, structure=structure),
    )


def _by_size() -> optax.GradientTransformationExtraArgs:
    """The EM gradient as far as theta's curvature is affordable, and AdaGrad beyond."""

    def chosen(theta: Theta) -> optax.GradientTransformationExtraArgs:
        size = sum(leaf.size for leaf in jax.tree.leaves(theta))
        if size > LARGEST_THETA:
            return optax.with_extra_args_support(optax.adagrad(0.1))
        return em_gradient(FEW_FOR_CURVATURE if size > MANY_PARAMETERS else None)

    def init(params: Theta) -> optax.OptState:
        return chosen(params).init(params)

    def update(
        updates: Theta, state: optax.OptState, params: Theta | None = None, **extra: Any
    ) -> tuple[Theta, optax.OptState]:
        return chosen(params).update(updates, state, params, **extra)

    return optax.GradientTransformationExtraArgs(init, update)
