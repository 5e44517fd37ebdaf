"""What a run returns: the estimate, the cloud, and one clear word on how it ended."""

from dataclasses import dataclass, fields
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from marginax.base import Algorithm, Data, Particles, Theta
from marginax.diagnostics.check import CloudCheck, check, unchecked

__all__ = ["Run", "RunError", "agreement", "check_clouds"]


class RunError(RuntimeError):
    """Raised by `run(..., throw=True)` for every ending but "converged".

    Attributes:
        run: the Run, complete as far as it went.
    """

    def __init__(self, run: "Run") -> None:
        super().__init__(f"{run.status}: {run.reason}")
        self.run = run

    def __reduce__(self) -> tuple[Any, ...]:
        return RunError, (self.run,)  # an exception is made anew from its words otherwise


@dataclass(frozen=True, repr=False, eq=False)
class Run:
    """The result of `run`. With `restarts=R`, theta, particles, state and history have a leading R.

    Attributes:
        theta: the estimate: the last iterate of a deterministic method, the average over the last
            half of the steps of a stochastic one. Always finite.
        particles: the cloud at the end.
        state: the algorithm's State at the end, from which `algorithm.step` goes on; None in a fit
            that was read from a file.
        history: what `record` kept at the end of every block, stacked along an axis over blocks.
        status: "converged" (the stopping rule fired), "max_steps" (it did not), "diverged" (theta
            or the particles ran away) or "nonfinite" (the model gave NaN or infinity), both in
            spite of smaller steps where these were allowed, "interrupted" (Ctrl-C, a callback, or
            a checkpoint that could not be written) or "time_limit". With restarts "converged" only
            if every start converged.
        reason: the ending in a sentence.
        num_steps: steps taken; with restarts, by the start that took most.
        timings: seconds, by stage: "start" (checks), "first_block" (with compilation), "total".
        statuses: the status of every start (one without restarts).
        reasons: their sentences.
        steps: how many steps each start took.
        clouds: a `diagnostics.CloudCheck` per start: whether its cloud can be believed. Empty if
            `check_cloud` is False, or the algorithm has a chain instead of a cloud or does not know
            its log joint.
        starts_agree: False if starts that converged ended at different thetas.
    """

    theta: Theta
    particles: Particles
    state: Any
    history: PyTree
    status: str
    reason: str
    num_steps: int
    timings: dict[str, float]
    statuses: tuple[str, ...]
    reasons: tuple[str, ...]
    steps: tuple[int, ...]
    clouds: tuple[CloudCheck, ...] = ()
    starts_agree: bool = True

    @property
    def converged(self) -> bool:
        """Whether the stopping rule fired (for every start)."""
        return self.status == "converged"

    @property
    def cloud(self) -> CloudCheck | None:
        """What the cloud can be believed; with restarts, the first one that gives doubts."""
        return next((cloud for cloud in self.clouds if not cloud.ok), next(iter(self.clouds), None))

    def __repr__(self) -> str:
        shapes = jax.tree.map(lambda leaf: tuple(leaf.shape), self.particles)
        lines = [
            f"Run: {self.status} after {self.num_steps} steps, {self.timings['total']:.1f} s",
            f"  {self.reason}",
            f"  theta      {_short(self.theta)}",
            f"  particles  {shapes}",
        ]
        if self.cloud is not None:
            lines.append(f"  {'cloud' if self.cloud.ok else 'WARNING'}  {self.cloud.verdict}")
        if len(self.statuses) > 1:
            lines += [
                f"  start {i}: {status}. {reason}"
                for i, (status, reason) in enumerate(zip(self.statuses, self.reasons, strict=True))
            ]
        return "\n".join(lines)


_STATIC = (
    *("status", "reason", "num_steps", "timings", "statuses", "reasons", "steps", "clouds"),
    "starts_agree",
)


def _flatten(run: Run) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    static = tuple(getattr(run, name) for name in _STATIC)
    static = (*static[:3], tuple(sorted(run.timings.items())), *static[4:])  # hashable, for jit
    return tuple(getattr(run, f.name) for f in fields(Run) if f.name not in _STATIC), static


def _unflatten(static: tuple[Any, ...], leaves: Any) -> Run:
    values = dict(zip(_STATIC, (*static[:3], dict(static[3]), *static[4:]), strict=True))
    return Run(*leaves, **values)


jax.tree_util.register_pytree_node(Run, _flatten, _unflatten)


def agreement(theta: np.ndarray, statuses: tuple[str, ...], tolerance: float) -> tuple[bool, str]:
    """Whether the converged starts ended at the same theta, and that in a sentence.

    Args:
        theta: the estimates, one row per start.
        statuses: how each start ended.
        tolerance: what each start promises about its own theta; five of them may separate two.
    """
    done = theta[[status == "converged" for status in statuses]]
    count = f"{len(done)} of {len(statuses)} starts converged"
    if len(done) < 2:
        return True, f"{count}, so there is nothing to compare."
    spread = done.max(axis=0) - done.min(axis=0)
    allowed = 5 * tolerance * np.maximum(1.0, np.abs(done).max(axis=0))
    if np.all(spread <= allowed):
        return True, f"{count} and agree: their thetas lie within {spread.max(initial=0.0):.1e}."
    worst = int(np.argmax(spread / allowed))
    return False, (
        f"{count} but DISAGREE: coordinate {worst} of theta ranges from {done[:, worst].min():.4g} "
        f"to {done[:, worst].max():.4g}. The likelihood may have several maxima, or the tolerance "
        "is too loose."
    )


def check_clouds(
    algorithm: Algorithm, result: Run, data: Data, restarts: int | None
) -> tuple[CloudCheck, ...]:
    """Whether each start's cloud can be believed; never a reason to lose the run."""
    if algorithm.log_joint is None or algorithm.over is None:
        return ()
    ends = [(result.theta, result.particles)]
    if restarts is not None:
        ends = [jax.tree.map(lambda leaf, i=i: leaf[i], ends[0]) for i in range(restarts)]
    try:
        return tuple(
            check(algorithm.log_joint, *end, data, over=algorithm.over, random=algorithm.stochastic)
            for end in ends
        )
    except KeyboardInterrupt:
        return ()
    except Exception as error:  # out of memory, a model that cannot be differentiated twice, ...
        first_line = str(error).splitlines()[0] if str(error) else ""
        return (unchecked(f"{type(error).__name__}: {first_line}"),)


def _short(tree: PyTree) -> str:
    def words(leaf: Any) -> str:
        values = np.asarray(leaf)
        if values.size > 8:
            head = ", ".join(f"{v:.4g}" for v in values.ravel()[:3])
            return f"[{head}, ...] of shape {values.shape}"
        return np.array2string(values, precision=4, suppress_small=True)

    return str(jax.tree.map(words, tree)).replace("'", "")
