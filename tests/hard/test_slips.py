"""Slips that give another model than the one that is meant: padding, long tables, indices."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import bernoulli, norm

import marginax as mx
from marginax._core.indices import Outside, indices_outside
from marginax.interop.numpyro import from_numpyro

numpyro = pytest.importorskip("numpyro")
import numpyro.distributions as dist  # noqa: E402
from numpyro.distributions import constraints  # noqa: E402

pytestmark = pytest.mark.usefixtures("as_users_write")
RANDOM = np.random.default_rng(11)
SIZES = np.array([3, 1, 4, 2, 6])
GROUP = np.repeat(np.arange(5), SIZES)
Y, T = RANDOM.normal(size=16), RANDOM.normal(size=16)
ITEM = RANDOM.integers(3, size=16)
PADDED = mx.pad_groups(GROUP, y=Y, t=T, item=ITEM)
START = {"m": jnp.asarray(0.0), "b": jnp.asarray(0.0), "item": jnp.zeros(3)}


def terms(theta, x, data):
    mean = x + theta["b"] * data["t"] + theta["item"][data["item"]]
    return norm.logpdf(data["y"], mean, 1.0)


def prior(theta, x):
    return norm.logpdf(x, theta["m"], 1.0)


MASKED = {
    "times": lambda t, x, d: prior(t, x) + jnp.sum(d["mask"] * terms(t, x, d)),
    "where": lambda t, x, d: prior(t, x) + jnp.sum(jnp.where(d["mask"] > 0, terms(t, x, d), 0.0)),
    "inputs": lambda t, x, d: (
        prior(t, x) + jnp.sum(d["mask"] * terms(t, x, d | {"t": d["t"] * d["mask"]}))
    ),
    # Not by the mask, but by what it counts: nothing of the padding is read either.
    "counts": lambda t, x, d: (
        prior(t, x) + jnp.sum(jnp.where(jnp.arange(6) < jnp.sum(d["mask"]), terms(t, x, d), 0.0))
    ),
}


@pytest.mark.parametrize("how", MASKED)
def test_a_mask_that_is_used_is_no_alarm(how):
    mx.Problem.grouped(MASKED[how], PADDED, theta=START, latent=0.0)


def test_padding_that_counts_is_warned_of_by_name():
    # The bug: a mask that is never read, and 14 observations that nobody made.
    def forgotten(theta, x, data):
        return prior(theta, x) + jnp.sum(norm.logpdf(data["y"], x, 1.0))

    with pytest.warns(UserWarning, match=r"padding of 'y'.*14 entries.*jnp.sum\(mask") as warned:
        mx.Problem.grouped(forgotten, PADDED, theta=START, latent=0.0)
    assert warned[0].filename == __file__  # the user's own line

    def half_masked(theta, x, data):
        # At the start b is 0, where nothing of t is read.
        known = jnp.sum(data["mask"] * norm.logpdf(data["y"], x, 1.0))
        return prior(theta, x) + known - jnp.sum(theta["b"] * x * data["t"])

    boolean = {**PADDED, "mask": PADDED["mask"] > 0}
    for data in (PADDED, boolean):
        with pytest.warns(UserWarning, match="padding of 't'"):
            mx.Problem.grouped(half_masked, data, theta=START, latent=0.0)


def test_a_mask_of_ones_and_weights_are_no_masks():
    def density(theta, x, data):
        return prior(theta, x) + jnp.sum(norm.logpdf(data["y"], x, 1.0))

    for mask in (np.ones((5, 6)), np.full((5, 6), 0.5), np.arange(5.0)):
        mx.Problem.grouped(density, {**PADDED, "mask": mask}, theta=START, latent=0.0)


def test_a_long_table_is_not_groups_of_one_row():
    # The bug: 1,934 groups of one row, and a variance that nothing tells from the noise.
    def density(theta, x, data):
        return prior(theta, x) + jnp.sum(norm.logpdf(data["y"], x, 1.0))

    with pytest.warns(
        UserWarning, match=r"data\['group'\] has 5 different labels.*16 rows.*pad_gr"
    ):
        mx.Problem.grouped(density, {"y": Y, "group": GROUP}, theta=START, latent=0.0)
    # One row per group is a model too: counts with their own effect, a group that is read.
    counts = {"y": ITEM, "t": T}

    def of_counts(theta, x, data):
        return prior(theta, x) + data["y"] * (x + theta["b"] * data["t"]) - jnp.exp(x)

    mx.Problem.grouped(of_counts, counts, theta=START, latent=0.0)
    mx.Problem.grouped(of_a_row, {"y": Y, "t": T, "item": ITEM}, theta=START, latent=0.0)


def of_a_row(theta, x, data):
    return prior(theta, x) + terms(theta, x, data)


@pytest.mark.parametrize(
    "labels",
    [
        np.where(GROUP == 1, np.nan, GROUP),
        np.array([None if g == 1 else f"g{g}" for g in GROUP], dtype=object),
        np.array([float("nan") if g == 1 else f"g{g}" for g in GROUP], dtype=object),
        np.array(["NaT" if g == 1 else "2020-01-01" for g in GROUP], dtype="datetime64[D]"),
    ],
)
def test_rows_without_a_group_are_refused(labels):
    # The bug: NaN was a group like any other.
    with pytest.raises(ValueError, match="no label for 1 of 16 rows, the first in row 3"):
        mx.pad_groups(labels, y=Y)


def by_index(theta, x, data):
    return jnp.sum(norm.logpdf(x, theta, 1.0)) + jnp.sum(norm.logpdf(data["y"], x[data["id"]], 1.0))


def test_ids_that_start_at_one_are_refused():
    # The bug: JAX clamps, and the last two groups are one.
    says = r"index of 5 \(as data\['id'\] has it\).*axis of size 5: places run from 0 to 4.*`- 1`"
    data = {"y": Y, "id": GROUP + 1}
    with pytest.raises(ValueError, match=says):
        mx.Problem(by_index, theta=0.0, latent=jnp.zeros(5), data=data)
    for legal in (GROUP, GROUP - 5):  # from the end, as NumPy has it
        data = {"y": Y, "id": legal}
        mx.Problem(by_index, theta=0.0, latent=jnp.zeros(5), data=data)
    one_each = {"y": Y[:3], "item": np.array([1, 2, 3])}

    def of_a_group(theta, x, data):
        return -0.5 * x**2 + norm.logpdf(data["y"], x + theta[data["item"]], 1.0)

    with pytest.raises(ValueError, match=r"index of 3 \(as data\['item'\]"):
        mx.Problem.grouped(of_a_group, one_each, theta=jnp.zeros(3), latent=0.0)

    def at_once(theta, x, data):
        each = norm.logpdf(data["y"], x[data["id"] - 1], 1.0)
        return norm.logpdf(x, theta, 1.0) + jax.ops.segment_sum(each, data["id"], 5)

    with pytest.raises(ValueError, match="index of 5"):
        mx.Problem.grouped(at_once, {"y": Y, "id": GROUP + 1}, theta=0.0, latent=0.0, num_groups=5)


X5 = jnp.asarray(RANDOM.normal(size=5))
INDICES = {
    "take fills with NaN": (lambda x, i: jnp.take(x, i), GROUP + 1, [Outside(5, 5)]),
    "too far back": (lambda x, i: x[i], GROUP - 6, [Outside(-6, 5)]),
    "one of two axes": (lambda x, i: x[:, None][i, 0], GROUP + 1, [Outside(5, 5)]),
    "within jit": (lambda x, i: jax.jit(lambda x, i: x[i])(x, i), GROUP + 1, [Outside(5, 5)]),
    "one at a time": (lambda x, i: jax.vmap(lambda j: x[j])(i), GROUP + 1, [Outside(5, 5)]),
    "by arithmetic": (lambda x, i: x[jnp.minimum(2 * i, 4)], GROUP + 1, []),
    "a clip that is meant": (lambda x, i: x.at[i].get(mode="clip"), GROUP + 1, []),
    "a fill that is meant": (
        lambda x, i: x.at[i].get(mode="fill", fill_value=0.0),
        GROUP + 1,
        [],
    ),
    "masked": (lambda x, i: jnp.where(i < 5, x[i], 0.0), GROUP + 1, []),
    "rows dropped": (lambda x, i: jax.ops.segment_sum(jnp.ones(16), i, 4), GROUP, []),
    "no index at all": (lambda x, i: jnp.sum(x) + 0.0 * i, GROUP + 1, []),
}


@pytest.mark.parametrize("case", INDICES)
def test_which_indices_are_outside(case):
    read, index, found = INDICES[case]
    assert indices_outside(read, X5, index) == found


class TestNumPyro:
    def model(self, index, y, likelihood, size=5):
        mean = numpyro.param("mean", 0.0)
        sd = numpyro.param("sd", 1.0, constraint=constraints.positive)
        with numpyro.plate("people", size):
            x = numpyro.sample("x", dist.Normal(mean, sd))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", likelihood(x[index]), obs=y)

    @pytest.mark.slow
    def test_ids_that_start_at_one_are_refused(self):
        with pytest.raises(ValueError, match=r"index of 5 .*axis of size 5.*`- 1`"):
            from_numpyro(self.model, GROUP + 1, Y, lambda eta: dist.Normal(eta, 1.0))

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "likelihood",
        [lambda eta: dist.Bernoulli(logits=eta), lambda eta: dist.Binomial(1, logits=eta)],
    )
    def test_logits_give_groups(self, likelihood):
        # The bug: a saturated term's slope is 1 - 1, and what rounding left of it was no group's.
        index = np.repeat(np.arange(30), 10)
        y = RANDOM.binomial(1, 0.5, size=300)
        problem = from_numpyro(self.model, index, y, likelihood, 30)
        assert problem.num_groups == 30
        assert problem.notes == ()
        np.testing.assert_array_equal(problem.group_log_joints.__self__.owners["y"], index)
        theta, latent = {"mean": 0.3, "sd": 0.7}, {"x": jnp.linspace(-1.0, 1.0, 30)}
        by_hand = jnp.sum(norm.logpdf(latent["x"], 0.3, 0.7)) + jnp.sum(
            bernoulli.logpmf(y, jax.nn.sigmoid(latent["x"])[index])
        )
        found = problem.log_joint(theta, latent, problem.data)
        np.testing.assert_allclose(found, by_hand, rtol=1e-6)

    @pytest.mark.slow
    def test_a_plate_that_gives_no_groups_says_why(self):
        def smooth(index, y):
            sd = numpyro.param("sd", 1.0, constraint=constraints.positive)
            with numpyro.plate("people", 5):
                x = numpyro.sample("x", dist.Normal(0.0, sd))
            with numpyro.plate("rows", len(y)):
                numpyro.sample("y", dist.Normal(x[index] + jnp.mean(x), 1.0), obs=y)

        problem = from_numpyro(smooth, GROUP, Y)
        assert problem.num_groups is None
        (note,) = problem.notes
        assert "The plate 'people' gives no groups: 16 of the 16 terms of 'y' depend on" in note

        def shared(index, y):
            sd = numpyro.param("sd", 1.0, constraint=constraints.positive)
            mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
            with numpyro.plate("people", 5):
                x = numpyro.sample("x", dist.Normal(mean, sd))
            with numpyro.plate("rows", len(y)):
                numpyro.sample("y", dist.Normal(x[index], 1.0), obs=y)

        problem = from_numpyro(shared, GROUP, Y)
        assert problem.num_groups is None
        assert "'people' gives no groups: mean is a latent outside of it" in problem.notes[0]

    @pytest.mark.slow
    def test_its_data_keep_their_digits(self):
        with jax.enable_x64(False), warnings.catch_warnings():
            warnings.simplefilter("error")
            problem = from_numpyro(self.model, GROUP, Y + 1e6, lambda eta: dist.Normal(eta, 1.0))
        assert "near 1e+06" in problem.loses_digits[0]
        assert any(np.array_equal(leaf, Y + 1e6) for leaf in problem._exact["data"])
