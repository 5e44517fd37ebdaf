"""One look at a cloud, in plain sentences: what is wrong with it and what to do about it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from marginax._core import partition, trees
from marginax._core.checks import check_start
from marginax._core.partition import BlockSpec
from marginax._core.programs import ById, recent
from marginax.diagnostics.cross_block import cross_block_curvature
from marginax.diagnostics.measures import effective_dimension
from marginax.flows.scores import latent_scores
from marginax.flows.units import Frame
from marginax.typing import Data, Latent, LogDensity, Particles, Theta

__all__ = ["CloudCheck", "Measures", "check", "judge", "measure", "unchecked"]

# A deterministic cloud outside these has lost, or has too much, of some coordinate's variance.
LOW, HIGH = 0.8, 1.25
# How many posterior standard deviations a flow's cloud may be away in any coordinate.
FARTHEST = 0.25
# A random cloud's mean ratio, and its position, may be this many standard errors off.
STANDARD_ERRORS = 3.0
# Curvature between blocks above this, relative to that within, is more than rounding.
COUPLING = 0.01


@dataclass(frozen=True)
class CloudCheck:
    """What a cloud can be believed, from `check`.

    Attributes:
        warnings: the reasons to doubt, a sentence each; empty if there are none.
        stein_ratio: the mean Stein ratio over coordinates; 1 is right.
        stein_low: the smallest of any coordinate.
        stein_high: the largest of any coordinate.
        offset: how far the cloud's mean is from where its scores vanish, in about posterior
            standard deviations, of the worst coordinate (of a random cloud, the root mean square
            over coordinates).
        effective_dimension: in how many directions the cloud extends.
        cross_block_curvature: relative curvature between the kernel's blocks; 0 if independent.
    """

    warnings: tuple[str, ...]
    stein_ratio: float
    stein_low: float
    stein_high: float
    offset: float
    effective_dimension: float
    cross_block_curvature: float

    @property
    def ok(self) -> bool:
        """Whether there is no reason to doubt the cloud."""
        return not self.warnings

    @property
    def verdict(self) -> str:
        """The warnings, or one sentence that says there are none."""
        if self.warnings:
            return " ".join(self.warnings)
        return (
            f"The cloud holds {_share(self.stein_ratio)} the posterior variance (Stein ratio "
            f"{self.stein_low:.3f} to {self.stein_high:.3f} per coordinate)."
        )

    def __str__(self) -> str:
        return self.verdict


def check(
    log_joint: LogDensity,
    theta: Theta,
    particles: Particles,
    data: Data = None,
    *,
    blocks: BlockSpec = "whole",
    random: bool = False,
    frame: Callable[[Theta, Particles, Data], Frame] | None = None,
) -> CloudCheck:
    """Whether the cloud has the place and the spread of the posterior at theta; if not, why not.

    Args:
        log_joint: `log_joint(theta, latent, data)`.
        theta: the estimate.
        particles: the cloud.
        data: handed to `log_joint`.
        blocks: the blocks of the kernel that made the cloud, as given to `kernels.blockwise`.
        random: whether the particles are random draws (Langevin, MCMC) rather than placed by a
            Stein flow: then single coordinates scatter, and only their mean is judged.
        frame: `Algorithm.frame`, if the blocks are of other coordinates than the latents: whether
            they are independent is then asked of those.

    Returns:
        A `CloudCheck`; print it.

    Example:
        >>> import jax, jax.numpy as jnp, marginax as mx
        >>> def log_joint(theta, x, y):
        ...     return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)
        >>> narrow = 0.4 * jax.random.normal(jax.random.key(0), (50, 3))
        >>> print(mx.diagnostics.check(log_joint, 0.0, narrow, jnp.zeros(3)).warnings[0][:52])
        The cloud holds 33 % of the posterior variance (Stei
    """
    theta, particles = check_start(theta, particles)
    data = jax.tree.map(jnp.asarray, data)
    compiled = measure(ById(log_joint, log_joint), ById(blocks, blocks), ById(frame, frame))
    measures = compiled(theta, particles, data)
    return judge(jax.device_get(measures), particles, blocks, random)


def unchecked(why: str) -> CloudCheck:
    """The check of a cloud that could not be made."""
    nan = float("nan")
    return CloudCheck((f"The cloud could not be checked ({why}).",), nan, nan, nan, nan, nan, nan)


class Measures(NamedTuple):
    """What `judge` wants to know of a cloud; computed on the device."""

    ratio: Array
    low: Array
    high: Array
    num_outside: Array
    standard_error: Array
    offset: Array
    offset_rms: Array
    effective_dimension: Array
    coupling: Array


def _measure(
    log_joint: ById, blocks: ById, frame: ById, theta: Theta, particles: Particles, data: Data
) -> Measures:
    x = trees.ravel_cloud(particles)
    s = trees.ravel_cloud(latent_scores(log_joint.value, theta, particles, data))
    terms = -s * (x - jnp.mean(x, axis=0, keepdims=True))
    ratio = jnp.mean(terms, axis=0)  # the Stein ratio
    # Per particle, so that the standard error knows how coordinates go together.
    per_particle = jnp.mean(terms, axis=1)
    n = per_particle.shape[0]
    # A Gaussian with precision p whose cloud is d away has a mean score of p d and c = p v.
    unit = jnp.std(x, axis=0) / jnp.sqrt(jnp.where(ratio == 0, 1, jnp.abs(ratio)))
    offset = jnp.abs(jnp.mean(s, axis=0)) * unit
    return Measures(
        ratio=jnp.mean(ratio),
        low=jnp.min(ratio),
        high=jnp.max(ratio),
        num_outside=jnp.sum(~((ratio >= LOW) & (ratio <= HIGH))),
        standard_error=jnp.std(per_particle) / n**0.5,
        offset=jnp.max(offset),
        offset_rms=jnp.sqrt(jnp.mean(offset**2)),
        effective_dimension=effective_dimension(particles),
        coupling=_coupling(log_joint.value, blocks.value, frame.value, theta, particles, data),
    )


def _coupling(
    log_joint: LogDensity,
    blocks: BlockSpec,
    frame: Callable[[Theta, Particles, Data], Frame] | None,
    theta: Theta,
    particles: Particles,
    data: Data,
) -> Array:
    if frame is None:
        return cross_block_curvature(log_joint, theta, particles, data, blocks=blocks)
    there = frame(theta, particles, data)

    def in_frame(theta: Theta, u: Latent, data: Data) -> Array:
        return log_joint(theta, there.to_latent(u), data)

    return cross_block_curvature(in_frame, theta, there.cloud, data, blocks=blocks)


measure = recent(_measure)


def judge(measures: Measures, particles: Particles, blocks: BlockSpec, random: bool) -> CloudCheck:
    """The sentences for what was measured."""
    n = trees.cloud_size(particles)
    num_coordinates = sum(leaf.size for leaf in jax.tree.leaves(particles)) // n
    families = partition.families(blocks, trees.first_particle(particles))
    ratio = float(measures.ratio) * (n / (n - 1) if random and n > 1 else 1)
    block_size = max(family.block_size for family in families)
    offset = float(measures.offset_rms if random else measures.offset)
    warnings = []
    if not np.all(np.isfinite([ratio, offset])):
        warnings.append(
            "The cloud cannot be judged: the scores are not finite at some particles, so log_joint "
            "or its gradient is not either."
        )
    elif random:
        warnings += _random_words(ratio, float(measures.standard_error))
    elif measures.num_outside > 0:
        warnings.append(_flow_words(measures, n, num_coordinates, block_size))
    elif n <= block_size and num_coordinates > 1:
        warnings.append(_too_few(n, block_size))
    if offset > (STANDARD_ERRORS / n**0.5 if random else FARTHEST):
        warnings.append(
            f"The cloud is not where the posterior is: its mean is about {offset:.2g} posterior "
            "standard deviations off. Let it run longer."
        )
    if measures.coupling > COUPLING:
        warnings.append(
            "The kernel's blocks are not independent given theta and the data: the curvature "
            f"between them is {_share(float(measures.coupling))} that within. The cloud "
            "cannot show correlation across blocks, its Stein ratio does not see that, and theta "
            "may be biased: merge the blocks that interact (`blocks='whole'`, or axes of the same "
            "name), with more particles than a block then has numbers."
        )
    return CloudCheck(
        warnings=tuple(warnings),
        stein_ratio=ratio,
        stein_low=float(measures.low),
        stein_high=float(measures.high),
        offset=offset,
        effective_dimension=float(measures.effective_dimension),
        cross_block_curvature=float(measures.coupling),
    )


def _random_words(ratio: float, error: float) -> list[str]:
    if abs(ratio - 1) <= STANDARD_ERRORS * error:
        return []
    return [
        f"The cloud holds {_share(ratio)} the posterior variance (mean Stein ratio {ratio:.3f}, "
        f"{abs(ratio - 1) / max(error, 1e-12):.1f} standard errors from 1): take smaller steps, or "
        "let it run longer."
    ]


def _flow_words(measures: Measures, n: int, num_coordinates: int, block_size: int) -> str:
    where = f"{int(measures.num_outside)} of {num_coordinates}"
    numbers = (
        f"Stein ratio {float(measures.low):.2f} to {float(measures.high):.2f}, outside "
        f"{LOW}-{HIGH} in {where} coordinates"
    )
    held = f"The cloud holds {_share(float(measures.ratio))} the posterior variance"
    if measures.ratio > HIGH or not measures.low < LOW:
        return (
            f"{held} ({numbers}): it is too wide. Let it run longer, or take smaller steps; if it "
            "has settled, the posterior is far from Gaussian, so draw from it with a sampler."
        )
    if n <= block_size and num_coordinates > 1:
        remedy = _too_few(n, block_size)
    else:
        remedy = (
            "Use `kernels.blockwise(kernels.moment_matched(kernels.rbf('mean')))`, more particles, "
            "or draw the cloud anew with a sampler; theta may be biased."
        )
    return f"{held} ({numbers}). {remedy}"


def _too_few(n: int, block_size: int) -> str:
    return (
        f"{n} particles cannot span blocks of {block_size} numbers: use at least {block_size + 1}, "
        "or smaller blocks (`kernels.blockwise`) if they are independent, or draw with a "
        "sampler."
    )


def _share(value: float) -> str:
    return f"{100 * value:.0f} % of" if value < 9.995 else f"{value:.0f} times"
