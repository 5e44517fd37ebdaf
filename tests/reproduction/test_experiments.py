"""The paper's experiments: how they are swept, what is exact, what the released baselines do."""

import by_hand as hand
import jax
import jax.numpy as jnp
import long_runs
import numpy as np
import pytest

import marginax as mx
from marginax.flows import langevin
from marginax.reproduction import claims, columns, experiments, results, sizes, sweep, toy
from marginax.reproduction.as_published import mpgd_as_published, soul_as_published
from marginax.reproduction.exact_logistic import exact_logistic
from marginax.reproduction.results import Labelled, stack
from marginax.reproduction.sweep import iterations


@pytest.mark.parametrize("budget_and_lanes", [(2**30, 512), (2**30, 3), (1, 512)])
def test_sweep_gives_the_same_in_any_chunks(monkeypatch, budget_and_lanes):
    """Also when the compiler says that not even one run fits: then one by one."""
    monkeypatch.setattr(sweep, "_limits", lambda: budget_and_lanes)
    settings = sweep.grid(a=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], b=[10.0])
    done = []
    found = sweep.sweep(
        lambda s, y: {"sum": s["a"] + s["b"] + y}, settings, np.array(0.5), progress=done.append
    )
    np.testing.assert_array_equal(found["sum"], np.arange(1.0, 8.0) + 10.5)
    assert sum(done) == 7


def test_grid_runs_its_last_axis_fastest():
    settings = sweep.grid(a=[1, 2], b=[3, 4, 5])
    np.testing.assert_array_equal(settings["a"], [1, 1, 1, 2, 2, 2])
    np.testing.assert_array_equal(settings["b"], [3, 4, 5, 3, 4, 5])


@pytest.mark.parametrize("num_steps", [1, 12, 500, 1000])
def test_thinned_steps_hold_the_first_and_the_last(num_steps):
    steps = sweep.thinned(num_steps)
    assert steps[0] == 1
    assert steps[-1] == num_steps
    assert np.all(np.diff(steps) > 0)


def test_iterations_asks_for_ten_in_a_row():
    path = np.full(40, 1.0)
    path[5:14] = 0.0  # nine near, then away again
    path[20:] = 0.01
    assert iterations(jnp.asarray(path), 0.0) == 20
    assert iterations(jnp.full(40, jnp.nan), 0.0) == 40


def test_labelled_finds_and_writes_its_numbers():
    methods = {"one": {"x": np.array([[1.0, 2.0]])}, "two": {"x": np.array([[3.0, np.nan]])}}
    array = stack(methods, {"x": ("kind", "step")}, {"kind": ("only",), "step": (1, 5)})["x"]
    np.testing.assert_array_equal(array.at(method="two", step=1), [3.0])
    assert array.csv() == "step,one | only,two | only\n1,1,3\n5,2,nan\n"
    assert Labelled(np.array([0.5]), ("k",), {"k": (2.0,)}).csv() == "k,value\n2,0.5\n"


@pytest.mark.parametrize(
    ("variance", "split", "theta", "joint_mode"),
    [(5.0, 0, 0.9676, 0.9035), (25.0, 45, 0.998, 0.9206), (5.0, None, 0.9865, 0.9297)],
)
def test_exact_logistic(variance, split, theta, joint_mode):
    """Against another importance sampler (standard error 0.0008 or less)."""
    data = mx.models.wisconsin(split).train
    found = exact_logistic(data.features, data.labels, variance, 40_000)
    assert found.standard_error < 0.002
    assert abs(found.theta - theta) < 4 * np.hypot(found.standard_error, 0.0008)
    assert abs(found.joint_mode - joint_mode) < 1e-4


def two_steps(method):
    start = jnp.array(hand.THETA), jnp.array(hand.PARTICLES)
    states = [method.init(jax.random.key(0), *start)]
    for key in jax.random.split(jax.random.key(1)):
        states.append(method.step(key, states[-1], jnp.array(hand.DATA))[0])
    return states


def test_published_mpgd():
    """Three iterations in NumPy with the same noise.

    Two bugs: theta with its momentum's drift, and particles that see the theta of this step.
    """
    step, friction, inverse_mass = 0.05, 0.7, 3.0
    method = mpgd_as_published(hand.log_joint, step, friction, inverse_mass)
    state = method.init(jax.random.key(3), jnp.array(hand.THETA), jnp.array(hand.PARTICLES))
    theta, x, m = hand.THETA, hand.PARTICLES, np.zeros(2)
    u = np.asarray(state.particle_momentum)
    rate = friction * inverse_mass
    w = np.exp(-rate * step)
    c1, c2, kick = (1 - w) / friction, (step - (1 - w) / rate) / friction, (1 - w) / rate
    coefficients = langevin.underdamped_coefficients(step, friction, inverse_mass)
    nothing = jnp.zeros(x.shape)
    for key in jax.random.split(jax.random.key(1), 3):
        drawn = langevin.underdamped(key, nothing, nothing, nothing, coefficients)
        e_x, e_u = (np.asarray(draw) for draw in drawn)
        g, s = hand.grad_theta(theta + c1 * m, x), hand.scores(theta, x)
        theta, m = theta + c2 * g, w * m + kick * g
        x, u = x + c1 * u + c2 * s + e_x, w * u + kick * s + e_u
        state, info = method.step(key, state, jnp.array(hand.DATA))
        for one, other in zip((*state[:4], *info), (theta, x, m, u, g, s), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_published_soul_climbs_the_chain_before():
    step = 0.05
    first, second, third = two_steps(soul_as_published(hand.log_joint, step))
    for before, after in ((first, second), (second, third)):
        theta = np.asarray(before.theta)
        climbed = theta + step * hand.grad_theta(theta, np.asarray(before.particles))
        np.testing.assert_allclose(after.theta, climbed, rtol=1e-12)
    # The chain itself is SOUL's.
    written = two_steps(mx.soul(hand.log_joint, step, step))
    np.testing.assert_allclose(second.particles, written[1].particles, rtol=1e-14)


@pytest.mark.slow
def test_first_page_has_the_numbers_of_the_papers_figure(monkeypatch):
    """451.0 and 232.2 as published, 882.5 and 78.2 as written, 12 by default; and the verdicts."""
    long_runs.compile_ahead_optimized(monkeypatch)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        arrays = toy.toy_methods(sizes.ToySize(), lambda runs: None)
    page = claims.claims({"toy_methods": results.Finished(arrays, {})})
    plain, fast, gain, variance, langevin = page
    assert plain[1:5] == ("450.9 ± 115.1", "451.0 ± 115.5", "882.5 ± 32.3", "12.0 ± 0.0")
    assert fast[1:4] == ("232 ± 60.7", "232.2 ± 60.7", "78.2 ± 3.4")
    assert gain[2:4] == ("1.94", "11.3")
    assert gain.verdict.startswith("Holds, as published and as written.")
    assert variance[3:5] == ("0.35", "1.00")
    # Trials with noise of their own differ by hundreds of steps, on one noise path by a few.
    several, one = langevin.published.split("; one path: ")
    assert several.split(", ")[0] == langevin.written.split(", ")[0]  # PGD is the same in both
    assert "200–201, 229 and 466–640" in langevin.verdict
    for name, shown in zip(("PGD", "MPGD", "SOUL"), one.split(", "), strict=True):
        at = {"convention": "12/12"}
        alone = arrays["iterations"].at(method=f"as written / {name}", **at)
        shared = arrays["iterations"].at(method=f"as published / {name} / one noise path", **at)
        assert np.ptp(shared) < 10 < 300 < np.ptp(alone)
        assert shown.split("–") == [str(steps) for steps in np.unique([shared.min(), shared.max()])]
    median = arrays["iterations"].at(method="as written / SVGD-EM / median", convention="12/12")
    np.testing.assert_allclose(median.mean(), 574.6, atol=0.1)
    diverges = arrays["iterations"].at(
        method="as written / M-SVGD-EM(0.9) / median", convention="12/12"
    )
    assert np.all(diverges == 1000)


def test_one_noise_path_is_that_of_trial_0():
    """The released code has one random key for all trials; a bug would give each its own."""
    size = sizes.ToySize(num_steps=3, trials=3)
    problem = toy.toy_problem(20, size.trials)
    problem["theta"][:] = problem["theta"][0]  # then only noise can differ
    problem["particles"][:] = problem["particles"][0]
    settings = sweep.grid(convention=[0], trial=range(size.trials)) | {
        name: np.full(size.trials, value) for name, value in toy.LANGEVIN["PGD"].items()
    }
    pgd, _, _ = columns.langevin_methods(columns.PUBLISHED)
    paths = []
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        for noise in ({}, {"noise": np.zeros(size.trials, int)}):
            runs = toy.toy_runs(pgd, settings | noise, problem, size.num_steps, lambda runs: None)
            paths.append(runs["theta"])
    own, shared = paths
    np.testing.assert_array_equal(shared, np.broadcast_to(own[0], own.shape))
    assert len(np.unique(own[:, -1])) == size.trials


@pytest.mark.parametrize(("steps", "num_rows"), [((1, 20), 2), ((50, 100), 2), ((100, 500), 4)])
def test_a_short_run_of_the_network_has_no_row_twice(steps, num_rows):
    """Of at most 100 steps: the row for step 100 and the row for the last step were the same."""
    labels = ["marginax / default"]
    for name in ("SVGD-EM", "M-SVGD-EM(0.9)"):
        tails = ("as written", " / accumulator 0.1"), ("as written", " / accumulator 0")
        for column, tail in (("as published", ""), *tails):
            labels.append(f"{column} / {name} / RBF{tail}")
    error = np.full((2, 2), 0.2)
    arrays = stack(
        {label: {"error": error} for label in labels},
        {"error": ("start", "step")},
        {"start": (0.0, 2.0), "step": steps},
    )
    rows = claims.claims({"network_curves": results.Finished(arrays, {})})
    assert len(rows) == num_rows
    assert len({row.claim for row in rows}) == num_rows


@pytest.mark.parametrize("starts", [(0.0,), (0.0, 1.0)])
def test_one_start_has_no_claim_about_starts(starts):
    """It read "over 1 starts", and that momentum does not lessen a spread of 0."""
    names = ("SVGD-EM", "M-SVGD-EM(0.9)")
    labels = [
        f"{column} / {name} / RBF" for column in ("as published", "as written") for name in names
    ]
    error = np.full((len(starts), len(starts)), 0.2)
    arrays = stack(
        {label: {"error": error} for label in [*labels, "marginax / default"]},
        {"error": ("alpha", "beta")},
        {"alpha": starts, "beta": starts},
    )
    rows = claims.claims({"network_starts": results.Finished(arrays, {})})
    assert [row.claim[:61] for row in rows] == [
        "Network: momentum lowers the mean final error over 4 starts ("
    ] * (len(starts) > 1)


def test_files_of_before_a_change_of_the_numbers_are_made_anew(monkeypatch):
    before = experiments.EXPERIMENTS[0].settings(sizes.QUICK)
    monkeypatch.setattr(experiments, "REVISION", experiments.REVISION + 1)
    assert experiments.EXPERIMENTS[0].settings(sizes.QUICK) != before
