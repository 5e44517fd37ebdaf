"""The methods of the report in its three columns: as written, as published, and this library's own.

A `Method` builds its algorithm from a log joint and a setting, a dict of (traced) numbers, so that
a sweep over any of them is one compiled call.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import optax

from marginax import kernels
from marginax.algorithms import m_svgd_em, mpgd, pgd, soul
from marginax.algorithms.contract import Algorithm
from marginax.flows import metrics, momentum
from marginax.flows.m_step import em_gradient
from marginax.kernels.base import Kernel
from marginax.reproduction.as_published import (
    as_published,
    attracting_rbf,
    mpgd_as_published,
    soul_as_published,
)
from marginax.typing import LogDensity

__all__ = [
    "KERNELS",
    "MARGINAX",
    "Method",
    "PUBLISHED",
    "WRITTEN",
    "langevin_methods",
    "marginax_default",
    "marginax_network",
    "restarted",
    "stein_method",
    "stein_name",
]

WRITTEN, PUBLISHED, MARGINAX = "as written", "as published", "marginax"
KERNELS = ("RBF", "median")


class Method(NamedTuple):
    """A method of one column.

    Attributes:
        column: as written, as published or marginax.
        name: what the paper calls it.
        kernel: "RBF" (h = 5), "median", or "" for methods without one.
        build: `build(log_joint, setting) -> Algorithm`.
    """

    column: str
    name: str
    kernel: str
    build: Callable[[LogDensity, Mapping[str, Any]], Algorithm]

    def label(self, momentum: float | None = None, detail: str = "") -> str:
        """The name of this method, at this momentum, in every table and file."""
        name = self.name if momentum is None else stein_name(momentum)
        return " / ".join(part for part in (self.column, name, self.kernel, detail) if part)


def stein_name(momentum: float) -> str:
    """SVGD-EM is M-SVGD-EM without momentum."""
    return "SVGD-EM" if momentum == 0.0 else f"M-SVGD-EM({momentum:g})"


def stein_method(column: str, kernel: str, adagrad: float | None = None) -> Method:
    """SVGD-EM (both momenta 0) and M-SVGD-EM, by setting.

    Args:
        column: as written or as published.
        kernel: "RBF" or "median".
        adagrad: start AdaGrad's accumulator at this value (None: a plain step).
    """

    def optimizer(setting: Mapping[str, Any]) -> Any:
        if adagrad is None:
            return setting["step_size"]
        # eps = 0 is safe with accumulator 0: optax moves nothing where no gradient was seen.
        eps = 0.0 if adagrad == 0.0 else 1e-7
        return optax.adagrad(setting["step_size"], initial_accumulator_value=adagrad, eps=eps)

    def build(log_joint: LogDensity, setting: Mapping[str, Any]) -> Algorithm:
        momenta = {
            "theta_momentum": setting["theta_momentum"],
            "particle_momentum": setting["particle_momentum"],
        }
        steps = optimizer(setting), optimizer(setting)
        if column == PUBLISHED:
            return as_published(log_joint, *steps, published_kernel(kernel), **momenta)
        return m_svgd_em(log_joint, *steps, written_kernel(kernel), **momenta)

    return Method(column, "M-SVGD-EM", kernel, build)


def written_kernel(name: str) -> Kernel:
    """The paper's kernels; its numbers come from exp(-r^2 / (2 h^2)) with h = 5."""
    return kernels.rbf(5.0) if name == "RBF" else kernels.rbf("median")


def published_kernel(name: str) -> Kernel:
    """Only the automatic RBF of the released code has the wrong sign, its median kernel not."""
    return attracting_rbf(5.0) if name == "RBF" else kernels.rbf("median")


def langevin_methods(column: str) -> tuple[Method, Method, Method]:
    """PGD, MPGD and SOUL. PGD is the same in both columns."""
    published = column == PUBLISHED

    def build_pgd(log_joint: LogDensity, setting: Mapping[str, Any]) -> Algorithm:
        return pgd(log_joint, setting["step_size"], setting["step_size"])

    def build_mpgd(log_joint: LogDensity, setting: Mapping[str, Any]) -> Algorithm:
        build = mpgd_as_published if published else mpgd
        return build(log_joint, setting["step_size"], setting["friction"], setting["inverse_mass"])

    def build_soul(log_joint: LogDensity, setting: Mapping[str, Any]) -> Algorithm:
        if published:
            return soul_as_published(log_joint, setting["step_size"])
        return soul(log_joint, setting["step_size"], setting["step_size"])

    return (
        Method(column, "PGD", "", build_pgd),
        Method(column, "MPGD", "", build_mpgd),
        Method(column, "SOUL", "", build_soul),
    )


def restarted(kernel: str) -> Method:
    """M-SVGD-EM with adaptive restart in place of a constant momentum."""

    def build(log_joint: LogDensity, setting: Mapping[str, Any]) -> Algorithm:
        return m_svgd_em(
            log_joint,
            setting["step_size"],
            setting["step_size"],
            written_kernel(kernel),
            theta_momentum=momentum.adaptive_restart(),
            particle_momentum=momentum.adaptive_restart(),
        )

    return Method(WRITTEN, "M-SVGD-EM(restart)", kernel, build)


def marginax_default(blocks: str) -> Method:
    """The configuration without a step size, a momentum or a bandwidth to choose.

    Args:
        blocks: the blocks of the latent that are independent given theta; "whole" if none are.
    """

    def build(log_joint: LogDensity, setting: Mapping[str, Any]) -> Algorithm:
        del setting
        return m_svgd_em(
            log_joint,
            em_gradient(),
            0.5,
            kernels.blockwise(kernels.moment_matched(kernels.rbf("mean")), blocks),
            theta_momentum=momentum.adaptive_restart(),
            particle_momentum=momentum.adaptive_restart(),
            particle_metric=metrics.curvature(),
        )

    return Method(MARGINAX, "default", "", build)


def marginax_network() -> Method:
    """The same with AdaGrad for the particles, whose 31,440 x 31,440 curvature has no room."""

    def build(log_joint: LogDensity, setting: Mapping[str, Any]) -> Algorithm:
        del setting
        return m_svgd_em(
            log_joint,
            em_gradient(),
            optax.adagrad(0.1),
            kernels.blockwise(kernels.moment_matched(kernels.rbf("mean")), "coordinates"),
            theta_momentum=momentum.adaptive_restart(),
            particle_momentum=momentum.adaptive_restart(),
        )

    return Method(MARGINAX, "default", "", build)
