"""What Ctrl-C leaves of a fit where it comes between two stages, or before the first has ended.

Each stage keeps its own: the climbs that have ended, the particles after their last whole block,
the highest point before Newton's last steps. Here is what is made of it where nothing goes on.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import jax

from marginax.fitting.fit_state import FitState
from marginax.fitting.stages import at_top, first_ending
from marginax.fitting.starts import Starts, settled
from marginax.fitting.strategies import Strategy
from marginax.likelihood.newton import Climb
from marginax.model.parameter_table import unravel_theta
from marginax.model.problem import Problem
from marginax.running.result import Run

__all__ = ["ended_by_ctrl_c", "kept", "unless_interrupted"]


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Stages that Ctrl-C ends: what they have assigned by then stays assigned."""
    try:
        yield
    except KeyboardInterrupt:
        return


def unless_interrupted(starts: Starts) -> None:
    """Ctrl-C again, if it came while the starts were climbed: nothing is to follow."""
    if starts.interrupted:
        raise KeyboardInterrupt


def kept(
    problem: Problem,
    strategy: Strategy,
    starts: Starts,
    ran: Run | None,
    state: FitState | None,
    ended: bool,
) -> tuple[Run, FitState]:
    """What there is, also where Ctrl-C ended the stages; it is raised again if that is nothing.

    Args:
        problem: what is fitted.
        strategy: whether the starts were climbed on a sample.
        starts: with the climbs that have ended.
        ran: the particles' run, if that has ended.
        state: what is known, if anything is.
        ended: whether the stages came to their end by themselves.
    """
    if ended and ran is not None and state is not None:
        return ran, state
    climbs = settled(starts.climbs)
    if ran is None and not climbs:
        raise KeyboardInterrupt
    when = "while the starts were climbed" if starts.interrupted else "between two stages"
    ran = _unmoved(problem, climbs) if ran is None else ran
    state = first_ending(ran, strategy) if state is None else state
    if state.information is None:
        state = at_top(state, strategy, climbs)
    missing = "posterior draws" if state.likelihood is not None else "a likelihood and draws"
    words = f"Ctrl-C {when}: the estimate is the best that was known by then, without {missing}."
    return ran, state._replace(interrupted=state.interrupted or words)


def _unmoved(problem: Problem, climbs: list[Climb]) -> Run:
    """The run of particles that never moved, at the highest top."""
    best = max(climbs, key=lambda one: one.local.value)
    theta = jax.tree.map(lambda leaf: leaf[None], unravel_theta(problem, best.theta))
    status, reason = "interrupted", "Ctrl-C before the particles' first step."
    return Run(
        theta=theta,
        particles=jax.tree.map(lambda leaf: leaf[None, None], problem.start_latent()),
        state=None,
        history=jax.tree.map(lambda leaf: leaf[:, None][:, :0], theta),
        status=status,
        reason=reason,
        num_steps=0,
        timings={"total": 0.0},
        statuses=(status,),
        reasons=(reason,),
        steps_per_start=(0,),
    )
