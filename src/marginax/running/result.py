"""What a run returns: the estimate, the cloud, and one clear word on how it ended."""

from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from marginax.algorithms.contract import Algorithm
from marginax.diagnostics.cloud import CloudCheck, check, unchecked
from marginax.running.loop import Position
from marginax.running.start_log import blocks_of
from marginax.running.stopping.stochastic import average_theta
from marginax.typing import Data, Particles, Theta

__all__ = ["Run", "agreement", "check_clouds", "result_of"]


@dataclass(frozen=True, repr=False, eq=False)
class Run:
    """The result of `run`; with `num_starts=R`, its arrays have a leading axis of length R.

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
            a checkpoint that could not be written) or "time_limit". With several starts "converged"
            only if every start converged.
        reason: the ending in a sentence.
        num_steps: steps taken; with several starts, by the one that took most.
        timings: seconds, by stage: "start" (checks), "first_block" (with compilation), "total".
        statuses: the status of every start.
        reasons: their sentences.
        steps_per_start: how many steps each start took.
        cloud_checks: a `diagnostics.CloudCheck` per start: whether its cloud can be believed. Empty
            with `diagnose=False`, or if the algorithm has a chain instead of a cloud or does not
            know its log joint.
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
    steps_per_start: tuple[int, ...]
    cloud_checks: tuple[CloudCheck, ...] = ()
    starts_agree: bool = True

    @property
    def converged(self) -> bool:
        """Whether the stopping rule fired (for every start)."""
        return self.status == "converged"

    @property
    def cloud_check(self) -> CloudCheck | None:
        """What the cloud can be believed; with several starts, the first that gives a warning."""
        checks = self.cloud_checks
        return next((check for check in checks if not check.ok), next(iter(checks), None))

    def without_start_axis(self) -> "Run":
        """The same for a run of one start: its arrays without the axis over starts."""
        names = ("theta", "particles", "state", "history")
        # Not by an index, after which devices might all hold all of the cloud.
        parts = {name: jax.tree.map(_squeezed, getattr(self, name)) for name in names}
        return replace(self, **parts)

    def __repr__(self) -> str:
        shapes = jax.tree.map(lambda leaf: tuple(leaf.shape), self.particles)
        lines = [
            f"Run: {self.status} after {self.num_steps} steps, {self.timings['total']:.1f} s",
            f"  {self.reason}",
            f"  theta      {_short(self.theta)}",
            f"  particles  {shapes}",
        ]
        check = self.cloud_check
        if check is not None:
            lines.append(f"  {'cloud' if check.ok else 'WARNING'}  {check.verdict}")
        if len(self.statuses) > 1:
            lines += [
                f"  start {i}: {status}. {reason}"
                for i, (status, reason) in enumerate(zip(self.statuses, self.reasons, strict=True))
            ]
        return "\n".join(lines)


_STATIC = (
    *(
        "status",
        "reason",
        "num_steps",
        "timings",
        "statuses",
        "reasons",
        "steps_per_start",
        "cloud_checks",
    ),
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


def _squeezed(leaf: Any) -> Any:
    return leaf.reshape(leaf.shape[1:])


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


def result_of(
    end: Position, timings: dict[str, float], is_noisy: bool, tolerance: float | None
) -> Run:
    """The Run of all starts: averages where the method is noisy, verdicts, and the history.

    Args:
        end: where the loop ended.
        timings: seconds by stage.
        is_noisy: whether the estimate is an average over steps.
        tolerance: what the stopping rule promises, if it promises anything.
    """
    state, log, endings = end.state, end.log, end.endings
    num_starts = len(endings)
    theta = state.theta
    if is_noisy and np.all(log.num_blocks > 0):
        one, unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], theta))
        means = [average_theta(blocks_of(log, i)) for i in range(num_starts)]
        theta = jax.vmap(unravel)(jnp.asarray(np.stack(means), one.dtype))
    statuses = tuple(ending.status for ending in endings)
    agree, reason = True, endings[0].reason
    if num_starts > 1:
        flat = np.asarray(jax.vmap(lambda one: ravel_pytree(one)[0])(theta))
        agree, reason = agreement(flat, statuses, tolerance or 1e-2)
    num_blocks = int(log.num_blocks.max())
    return Run(
        theta=theta,
        particles=state.particles,
        state=state,
        history=jax.tree.map(lambda leaf: jax.device_put(leaf[:, :num_blocks]), log.records),
        status=next((status for status in statuses if status != "converged"), "converged"),
        reason=reason,
        num_steps=int(log.num_steps.max()),
        timings=timings,
        statuses=statuses,
        reasons=tuple(ending.reason for ending in endings),
        steps_per_start=tuple(int(steps) for steps in log.num_steps),
        starts_agree=agree,
    )


def check_clouds(algorithm: Algorithm, result: Run, data: Data) -> tuple[CloudCheck, ...]:
    """Whether each start's cloud can be believed; never a reason to lose the run."""
    log_joint = algorithm.log_joint
    if log_joint is None or algorithm.blocks is None:
        return ()

    def check_end(i: int) -> CloudCheck:
        theta, particles = jax.tree.map(lambda leaf: leaf[i], (result.theta, result.particles))
        return check(
            log_joint,
            theta,
            particles,
            data,
            blocks=algorithm.blocks,
            random=algorithm.stochastic,
            frame=algorithm.frame,
        )

    try:
        return tuple(check_end(i) for i in range(len(result.statuses)))
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
