"""The rules on made-up paths whose right answer is known."""

import numpy as np
import pytest
import scipy.signal

from marginax.running import stopping
from marginax.running.stopping import Blocks, stochastic
from marginax.running.stopping.base import asked, even, first, num_even


def blocks_from(path, block=20, velocity=0.0, score=0.0, seconds=0.0):
    """The summaries that a path of theta, [steps] or [steps, p], would leave."""
    path = np.asarray(path, float)
    path = path[:, None] if path.ndim == 1 else path
    parts = path[: len(path) // block * block].reshape(-1, block, path.shape[1])
    count = len(parts)
    return Blocks(
        steps=np.full(count, block),
        theta_mean=parts.mean(axis=1),
        theta_low=parts.min(axis=1),
        theta_high=parts.max(axis=1),
        theta_score=np.full((count, path.shape[1]), score),
        theta_score_spread=np.ones((count, path.shape[1])),
        velocity=np.full(count, velocity),
        score=np.ones(count),
        epsilon=2e-16,
        seconds=seconds,
    )


def first_fire(rule, path, **more):
    """The number of steps after which the rule fires on this path, or None."""
    whole = blocks_from(path, **more)
    lengths = {*asked(len(whole.steps), 8), *asked(len(whole.steps), 32)}
    for count in sorted(lengths):  # between these no rule answers
        if rule.check(first(whole, count)):
            return int(whole.steps[:count].sum())
    return None


T = np.arange(20_000.0)


@pytest.mark.parametrize("rate", [0.9, 0.99, 0.999, 0.9995])
def test_settled_is_within_tolerance_on_geometric_paths(rate):
    path = 3 * rate**T
    fired = first_fire(stopping.settled(1e-2), path)
    assert fired is not None
    assert path[fired - 1] <= 1e-2
    # It is careful but not endless: a few times the steps that the tolerance needs.
    assert fired <= max(2000, 5 * np.log(3 / 1e-2) / -np.log(rate))


def test_settled_is_not_fooled_by_a_slow_path():
    # Moves 1e-4 a block with 3 left to go: a bare tolerance on differences would stop at once.
    assert first_fire(stopping.settled(1e-2), 3 - 5e-6 * T) is None


def test_settled_takes_a_tremble_far_below_the_tolerance_for_rest():
    # Without a trend, the last two quarters move alike and no end of it is in sight.
    tremble = 1e-6 * np.random.default_rng(0).normal(size=len(T))
    assert first_fire(stopping.settled(1e-2), 1 + 0.5**T + tremble) <= 1000
    assert first_fire(stopping.settled(1e-2), 1 + 0.5**T + 100 * tremble) is None


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_settled_is_within_tolerance_on_power_laws(power):
    path = (1 + T / 10) ** -power
    fired = first_fire(stopping.settled(1e-2), path)
    assert fired is not None
    assert path[fired - 1] <= 1e-2 * 1.05


def test_settled_waits_for_a_power_law_that_is_not_there_yet():
    path = (1 + T / 10) ** -0.5
    assert path[-1] > 2e-2
    assert first_fire(stopping.settled(1e-2), path) is None


@pytest.mark.parametrize("period", [30, 200, 700, 1500])
def test_settled_is_within_tolerance_on_swinging_paths(period):
    envelope = 3 * 0.998**T
    path = envelope * np.cos(2 * np.pi * T / period)
    fired = first_fire(stopping.settled(1e-2), path)
    assert fired is not None
    assert np.max(np.abs(path[fired:])) <= 2e-2


def test_settled_waits_for_score_and_velocity():
    path = 0.9**T
    assert first_fire(stopping.settled(1e-2), path, velocity=1e-3) is None
    assert first_fire(stopping.settled(1e-2), path, score=1e-3) is None
    assert first_fire(stopping.settled(1e-2), path, velocity=1e-4, score=1e-4) is not None


def autoregressive(rng, steps, phi, sd):
    """Stationary AR(1) noise with the given standard deviation."""
    noise = rng.normal(size=steps) * sd * np.sqrt(1 - phi**2)
    noise[0] = rng.normal() * sd
    return scipy.signal.lfilter([1.0], [1.0, -phi], noise)


@pytest.mark.parametrize(("phi", "sd"), [(0.0, 1.0), (0.9, 0.3), (0.99, 0.1)])
def test_averaged_is_within_tolerance_in_95_of_100(phi, sd):
    # A transient of 200 steps and noise with a memory of up to 100.
    rng = np.random.default_rng(5)
    rule, good, fired = stopping.averaged(0.05), 0, 0
    for _ in range(100):
        path = 2 * 0.995 ** np.arange(40_000) + autoregressive(rng, 40_000, phi, sd)
        stop = first_fire(rule, path)
        if stop is not None:
            fired += 1
            estimate = stochastic.average_theta(blocks_from(path[:stop]))
            good += abs(estimate[0]) <= 0.05
    assert fired >= 90
    assert good >= 0.95 * fired


def test_averaged_is_not_fooled_by_a_slow_drift():
    # Noise hides the drift from any comparison of neighbours; 2 is left to go at the end.
    rng = np.random.default_rng(6)
    path = 4 - 1e-4 * T + 0.05 * rng.normal(size=len(T))
    assert first_fire(stopping.averaged(0.05), path) is None


def test_averaged_needs_a_small_error():
    rng = np.random.default_rng(7)
    path = 10 * rng.normal(size=2000)
    assert first_fire(stopping.averaged(1e-3), path) is None


def test_a_coordinate_that_does_not_move_does_not_block():
    rng = np.random.default_rng(8)
    path = np.stack([0.1 * rng.normal(size=len(T)), np.full(len(T), 7.0)], axis=1)
    assert first_fire(stopping.averaged(0.05), path) is not None
    assert first_fire(stopping.settled(0.05), np.stack([0.9**T, np.full(len(T), 7.0)], axis=1))


def test_rules_combine():
    yes = stopping.StoppingRule(lambda blocks: stopping.Verdict("converged", "Yes."), 0.1)
    late = stopping.max_seconds(5.0)
    early, after = blocks_from(T[:40]), blocks_from(T[:40], seconds=6.0)
    assert (yes | late).check(early) == ("converged", "Yes.")
    assert (late | yes).check(after).status == "time_limit"
    assert (yes & late).check(early) is None
    both = (yes & late).check(after)
    assert both.status == "time_limit"
    assert both.reason.startswith("Yes. The time limit")
    assert (late | yes).tolerance == 0.1
    assert stopping.never().check(after) is None


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_tolerances(bad):
    for rule in (stopping.settled, stopping.averaged):
        with pytest.raises(ValueError, match="tolerance is"):
            rule(bad)
    with pytest.raises(ValueError, match="max_seconds is"):
        stopping.max_seconds(-1.0)


def test_a_theta_that_does_not_move_in_float32_warns_of_nothing():
    # The bug: 1e-300 is 0 in float32, and the variance of what stands still is 0 too.
    still = blocks_from(np.full(5000, 3.0))
    narrow = still._replace(theta_mean=still.theta_mean.astype(np.float32), epsilon=1.2e-7)
    with np.errstate(all="raise"):
        drift, drift_error, error = stochastic._horizons(narrow)
        np.testing.assert_array_equal([drift, drift_error, error], 0.0)
        assert stochastic._is_stationary(narrow, 1e-2)


def test_blocks_that_grow_are_judged_as_blocks_of_one_length():
    """Rules count quarters and batches in blocks: of blocks that grow the last would be most."""
    path = np.random.default_rng(0).normal(size=(2400, 2)).cumsum(axis=0)
    short, long = blocks_from(path, block=10), blocks_from(path, block=20)
    joined = {
        name: np.concatenate([field[:200], getattr(long, name)[100:]])
        for name, field in short._asdict().items()
        if np.ndim(field)
    }
    grown = short._replace(**joined)
    assert num_even(grown.steps) == len(long.steps) == 120
    for name, field in even(grown)._asdict().items():
        np.testing.assert_allclose(field, getattr(long, name), rtol=1e-12)
    assert even(short) is short
    assert num_even(np.zeros(0, int)) == 0
    np.testing.assert_allclose(stochastic.average_theta(grown), stochastic.average_theta(long))
    # What a run that ended between two blocks left is put together too.
    cut = np.array([10, 10, 4, 6, 10, 3])
    assert num_even(cut) == 5
