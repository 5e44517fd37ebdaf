"""Factors of sparse matrices, every kind on every pattern, against NumPy's dense linear algebra."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marginax._core.factors import choose, elimination, multiply, pattern_of, raised, units
from marginax._core.factors.arrow import arrow_factors, split
from marginax._core.factors.chain import chain_factors
from marginax._core.factors.general import general_factors
from marginax._core.factors.interiors import long_chains, small_units, units_of
from marginax._core.factors.splitting import border_of_chain, removal, two_sides

KINDS = ["dense", "chain", "arrow", "sparse"]


def lower(n, pairs):
    """The pattern of pairs of neighbours, and the whole diagonal, sorted."""
    keys = [i * n + i for i in range(n)]
    keys += [max(i, j) * n + min(i, j) for i, j in pairs]
    keys = np.unique(np.array(keys))
    return keys // n, keys % n, n


def band(n, *lags):
    return lower(n, [(i, i - lag) for lag in lags for i in range(lag, n)])


def grid(a, b):
    place = np.arange(a * b).reshape(a, b)
    down = zip(place[1:].ravel(), place[:-1].ravel(), strict=True)
    across = zip(place[:, 1:].ravel(), place[:, :-1].ravel(), strict=True)
    return lower(a * b, [*down, *across])


def crossed(*levels, rows, slopes=1):
    """Factors with these levels, of which every row of a table has one each, at random."""
    random = np.random.default_rng(len(levels) + slopes)
    first = np.cumsum([0, *levels])
    table = first[:-1] + random.integers(levels, size=(rows, len(levels)))
    table = (table[:, :, None] * slopes + np.arange(slopes)).reshape(rows, -1)
    table = np.unique(table, axis=0)
    pairs = np.stack([np.repeat(table, table.shape[1], 1), np.tile(table, (1, table.shape[1]))])
    return lower(int(first[-1]) * slopes, pairs.reshape(2, -1).T.tolist())


def bordered(n, number):
    everywhere = [(n + k, i) for k in range(number) for i in range(n + k)]
    return lower(n + number, [(i, i - 1) for i in range(1, n)] + everywhere)


def scattered(n, number):
    return lower(n, np.random.default_rng(7).integers(n, size=(number, 2)).tolist())


PATTERNS = {
    "first order": band(23, 1),
    "second order": band(24, 1, 2),
    "season": band(41, 1, 12),
    "grid": grid(5, 6),
    "two crossed": crossed(20, 9, rows=60),
    "three crossed": crossed(20, 7, 5, rows=40),
    "slopes crossed": crossed(10, 4, rows=25, slopes=2),
    "chain and border": bordered(30, 2),
    "scattered": scattered(30, 45),
    "full": lower(10, [(i, j) for i in range(10) for j in range(i)]),
    "apart": lower(7, [(3, 1)]),
    "one": lower(1, []),
}


def values_of(places, seed=0):
    """Values that make a positive definite matrix, none of whose entries is special."""
    rows, cols, n = places
    random = np.random.default_rng(seed)
    values = random.normal(size=len(rows))
    off = rows != cols
    sums = np.bincount(rows[off], np.abs(values[off]), n) + np.bincount(
        cols[off], np.abs(values[off]), n
    )
    values[~off] = sums * random.uniform(0.9, 1.3, size=n) + 0.4
    return values


def dense(places, values):
    rows, cols, n = places
    matrix = np.zeros((n, n))
    matrix[rows, cols] = values
    matrix[cols, rows] = values
    return matrix


@functools.cache
def made(kind, name):
    if kind == "sparse":  # branches of one latent, or there would be one front only
        before, elimination.LEAF = elimination.LEAF, 1
        try:
            return choose(*PATTERNS[name], kind=kind)
        finally:
            elimination.LEAF = before
    return choose(*PATTERNS[name], kind=kind)


def everything(factors):
    """All that the factors can do, in one program where they can be compiled."""

    def compute(values, b):
        f = factors.factor(values)
        eye = jnp.eye(factors.pattern.n, dtype=b.dtype)
        return {
            "positive": factors.positive(f),
            "solve": factors.solve(f, b),
            "one": factors.solve(f, b[0]),
            "half": factors.half_solve(f, b),
            "log determinant": factors.log_determinant(f),
            "inverse": factors.inverse_on_pattern(f),
            "whitened": factors.whiten(f, b),
            "back": factors.whiten(f, factors.unwhiten(f, b)),
            "draws": factors.unwhiten(f, eye),
        }

    return jax.jit(compute) if factors.traceable else compute


def check(factors, values, compute=None):
    rows, cols, n = places = factors.pattern
    matrix = dense(places, values)
    inverse = np.linalg.inv(matrix)
    b = np.random.default_rng(1).normal(size=(3, n))
    found = (compute or everything(factors))(jnp.asarray(values), jnp.asarray(b))
    close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-10)
    assert bool(found["positive"])
    close(found["solve"], b @ inverse)  # a permutation that is not undone
    close(found["one"], b[0] @ inverse)
    close(np.sum(np.square(found["half"]), axis=1), np.sum(b @ inverse * b, axis=1))
    close(found["log determinant"], np.linalg.slogdet(matrix)[1])  # half of it, or padding
    close(found["inverse"], inverse[rows, cols])  # entries in another order than the values
    close(found["back"], b)
    # Draws by a unit factor, or by L instead of its transpose, have another covariance.
    close(np.transpose(found["draws"]) @ found["draws"], inverse)
    close(np.sum(np.square(found["whitened"]), axis=1), np.sum(b @ matrix * b, axis=1))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"),
    [(k, name) for k in KINDS for name in PATTERNS if (k, name) != ("arrow", "one")],
)
def test_every_kind_on_every_pattern(kind, name):
    factors = made(kind, name)
    assert factors.kind == kind
    compute, values = everything(factors), values_of(PATTERNS[name])
    plain = check(factors, values, compute)
    # Latents in other units, to powers of two, change nothing but the units: a tolerance would.
    rows, cols, n = factors.pattern
    scale = 2.0 ** np.random.default_rng(2).integers(-30, 31, size=n)
    b = np.random.default_rng(1).normal(size=(3, n))
    scaled = jnp.asarray(values * scale[rows] * scale[cols])
    found = jax.tree.map(np.asarray, compute(scaled, jnp.asarray(b * scale)))
    assert bool(found["positive"])
    np.testing.assert_allclose(found["solve"] * scale, plain["solve"], rtol=1e-9, atol=1e-12)
    unscaled = found["inverse"] * scale[rows] * scale[cols]
    np.testing.assert_allclose(unscaled, plain["inverse"], rtol=1e-9, atol=1e-12)
    shift = found["log determinant"] - 2 * np.sum(np.log(scale))
    np.testing.assert_allclose(shift, plain["log determinant"], atol=1e-9)


@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_gpu_has_all_that_these_programs_need(kind):
    """Lowered for one, nothing calls LAPACK or Python on the host: factors stay on the device."""
    factors = made(kind, "two crossed")
    values, b = jnp.asarray(values_of(factors.pattern)), jnp.ones((3, factors.pattern.n))
    text = everything(factors).trace(values, b).lower(lowering_platforms=("cuda",)).as_text()
    called = set(re.findall(r"custom_call @([\w.]+)", text))
    assert all(name.startswith(("cusolver", "cublas")) for name in called), called


def test_units_of_different_sizes_are_padded():
    # Padding with zeros has no factor, and padding that is counted moves the determinant.
    places = lower(9, [(1, 0), (2, 1), (4, 3), (6, 0), (7, 2), (7, 3), (6, 5), (8, 7), (8, 0)])
    pattern = pattern_of(*places)
    parts = split(pattern, np.array([6, 7, 8]))
    layout = units_of(parts.own_pattern)
    assert (layout.number, layout.size) == (3, 3)
    check(arrow_factors(pattern, parts, small_units(parts, layout, "units")), values_of(places))


@pytest.mark.parametrize("name", ["chain and border", "two crossed", "season"])
def test_a_border_on_a_chain(name):
    # The border need not be last, nor see all of the chain.
    pattern = pattern_of(*PATTERNS[name])
    parts = split(pattern, np.array([0, 5, pattern.n - 1]))
    inner = chain_factors(parts.own_pattern)
    check(
        arrow_factors(pattern, parts, long_chains(parts, inner, "a chain")),
        values_of(PATTERNS[name]),
    )


@pytest.mark.parametrize("leaf", [3, 64])
def test_fronts_of_other_sizes(leaf, monkeypatch):
    monkeypatch.setattr(elimination, "LEAF", leaf)
    for places in (grid(9, 9), crossed(20, 7, 5, rows=40), scattered(60, 90)):
        factors = general_factors(pattern_of(*places))
        check(factors, values_of(places))


def test_fronts_follow_the_tree(monkeypatch):
    # SuperLU's order is no postorder: with it, branches were scattered and fronts 20 times as many.
    monkeypatch.setattr(elimination, "LEAF", 16)
    plan = elimination.plan_of(pattern_of(*grid(30, 30)))
    assert len(plan.fronts) < 150
    assert all(front.parent > t for t, front in enumerate(plan.fronts) if len(front.below))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_positive_is_noticed_and_raised(kind):
    factors, places = made(kind, "grid"), PATTERNS["grid"]
    rows, cols, n = places
    diagonal, good = np.flatnonzero(rows == cols), values_of(places)
    kept = raised(factors, good)
    assert float(kept.share) == 0
    np.testing.assert_array_equal(kept.values, good)
    for place in (0, 13, n - 1):  # the first pivot, one in between, the last
        for factor in (-1, -1e-8):
            values = good.copy()
            values[diagonal[place]] *= factor
            assert not bool(factors.positive(factors.factor(jnp.asarray(values))))
            found = raised(factors, values)
            assert bool(factors.positive(found.factor))
            assert np.min(np.linalg.eigvalsh(dense(places, np.asarray(found.values)))) > 0
            # One bad latent does not hold the others back.
            added = (np.asarray(found.values) - values)[diagonal] / good[diagonal]
            assert np.max(np.delete(added, place)) < 0.01
    # A share to begin with, as of a trust region, is added to what has a factor already.
    more = raised(factors, good, share=0.5)
    np.testing.assert_allclose(np.asarray(more.values)[diagonal], 1.5 * good[diagonal])
    # What is not finite has no factor, is not replaced by something finite, and the search ends.
    for bad in (np.nan, np.inf):
        values = good.copy()
        values[diagonal[3]] = bad
        assert not bool(factors.positive(factors.factor(jnp.asarray(values))))
        assert np.isnan(float(raised(factors, values).share))


@pytest.mark.parametrize("kind", KINDS)
def test_a_zero_pivot_is_not_positive(kind):
    factors = choose(*lower(2, [(1, 0)]), kind=kind)
    for values in ([1.0, 1.0, 1.0], [0.0, 0.0, 1.0], [-1.0, 0.0, 1.0], [1.0, 0.0, 0.0]):
        assert not bool(factors.positive(factors.factor(jnp.array(values))))


def test_raising_does_not_depend_on_units():
    # An absolute amount is nothing for one latent and everything for another.
    factors, (rows, cols, n) = made("chain", "second order"), PATTERNS["second order"]
    values = values_of(PATTERNS["second order"])
    values[rows != cols] *= 3
    scale = 10.0 ** np.random.default_rng(3).uniform(-9, 9, size=n)
    one, other = raised(factors, values), raised(factors, values * scale[rows] * scale[cols])
    assert float(one.share) == float(other.share) > 0
    back = np.asarray(other.values) / scale[rows] / scale[cols]
    np.testing.assert_allclose(back, one.values, rtol=1e-12)


@pytest.mark.slow
def test_units_where_a_curvature_passes_zero():
    # With |H_ii| alone, a latent of no curvature would need a share that freezes all the others.
    pattern = pattern_of(*band(5, 1))
    on = pattern.rows == pattern.cols
    values = np.where(on, 4.0, 1.0)
    place = np.flatnonzero(on)[2]
    for tiny in (0.0, 1e-14, -1e-14):
        values[place] = tiny
        found = np.asarray(units(pattern, jnp.asarray(values)))
        np.testing.assert_allclose(found, [4, 4, 1, 4, 4])
    assert np.all(np.asarray(units(pattern, jnp.zeros(9))) > 0)
    np.testing.assert_allclose(units(pattern, jnp.where(on, 0.0, 3.0)), np.full(5, 3.0))
    alone = jnp.asarray([0.0, 4.0, 9.0])  # no entries at all: as large as the others are
    np.testing.assert_allclose(units(pattern_of(*lower(3, [])), alone), [6, 4, 9])


@pytest.mark.parametrize("kind", ["dense", "chain", "arrow"])
def test_batches_of_matrices(kind):
    factors, places = made(kind, "two crossed"), PATTERNS["two crossed"]
    values = np.stack([values_of(places, seed) for seed in range(3)])
    values[1, np.flatnonzero(places[0] == places[1])[2]] *= -1
    b = np.random.default_rng(4).normal(size=places[2])

    @jax.jit
    @jax.vmap
    def solutions(values):
        found = raised(factors, values)
        f = found.factor
        return found.share, factors.solve(f, jnp.asarray(b)), factors.inverse_on_pattern(f)

    share, solved, inverse = solutions(jnp.asarray(values))
    np.testing.assert_array_equal(np.asarray(share) > 0, [False, True, False])
    for k in (0, 2):  # not raised along with the one that needs it
        exact = np.linalg.inv(dense(places, values[k]))
        np.testing.assert_allclose(solved[k], exact @ b, atol=1e-10)
        np.testing.assert_allclose(inverse[k], exact[places[0], places[1]], atol=1e-10)


@pytest.mark.slow
@pytest.mark.float32
@pytest.mark.parametrize("kind", KINDS)
def test_the_dtype_is_that_of_the_values(kind):
    factors, places = made(kind, "two crossed"), PATTERNS["two crossed"]
    values = values_of(places).astype(np.float32)
    b = np.ones((3, places[2]), np.float32)
    found = everything(factors)(jnp.asarray(values), jnp.asarray(b))
    found = {name: part for name, part in found.items() if name != "positive"}
    assert {np.asarray(part).dtype for part in found.values()} == {np.dtype(np.float32)}
    assert raised(factors, values).values.dtype == np.float32
    exact = np.linalg.inv(dense(places, values))[places[0], places[1]]
    np.testing.assert_allclose(found["inverse"], exact, atol=1e-4)


def test_products():
    # The diagonal twice, or a triangle alone.
    places = PATTERNS["scattered"]
    values, x = values_of(places), np.random.default_rng(5).normal(size=(2, places[2]))
    pattern = pattern_of(*places)
    exact = x @ dense(places, values)
    np.testing.assert_allclose(multiply(pattern, jnp.asarray(values), jnp.asarray(x)), exact)
    np.testing.assert_allclose(multiply(pattern, jnp.asarray(values), jnp.asarray(x[0])), exact[0])


CHOICES = {
    "a chain": band(100_000, 1),
    "a chain of blocks of 2": band(50_000, 1, 2),
    "a chain of blocks of 12": band(5_000, 1, 12),
    "a chain of blocks of 60": grid(60, 60),
    "a chain and 3 that touch much of it": bordered(20_000, 3),
    "two crossed factors (an arrow: 3,000 eliminated, 1,100 dense)": crossed(
        3000, 1100, rows=20_000
    ),
    "small parts and what joins them (an arrow: 1,500 eliminated, 400 dense)": crossed(
        1500, 250, 150, rows=20_000
    ),
    "general sparse": grid(220, 220),
    "dense": lower(300, [(i, j) for i in range(300) for j in range(i)]),
}


@pytest.mark.parametrize("words", CHOICES)
def test_what_is_chosen(words):
    assert choose(*CHOICES[words]).words == words


def test_slopes_are_eliminated_together():
    # A greedy independent set would leave one latent of every pair in the border.
    factors = choose(*crossed(600, 200, rows=6_000, slopes=2), kind="arrow")
    assert "1,200 eliminated, 400 dense" in factors.words


def test_a_shuffled_chain_is_found():
    order = np.random.default_rng(6).permutation(500)
    factors = choose(*lower(500, [(order[i], order[i - 1]) for i in range(1, 500)]))
    assert factors.words == "a chain"
    check(factors, values_of(factors.pattern))


def test_every_part_of_a_graph_has_its_own_larger_side():
    # Sides are 0 and 1 by the first latent: here the larger is the first one's, there the other.
    star = [(4, i) for i in range(4)]
    turned = [(5 + i, 5) for i in range(1, 5)]
    border = two_sides(pattern_of(*lower(11, star + turned)))
    np.testing.assert_array_equal(np.flatnonzero(border), [4, 5])
    assert two_sides(pattern_of(*band(5, 1, 2))) is None


def test_the_border_of_a_chain_is_where_degrees_fall():
    found = removal(pattern_of(*bordered(50, 3)))
    np.testing.assert_array_equal(np.sort(border_of_chain(found, 10)), [50, 51, 52])
    assert len(border_of_chain(removal(pattern_of(*band(50, 1))), 10)) == 0


@pytest.mark.parametrize(
    ("rows", "cols", "n", "message"),
    [
        ([0, 1], [0], 2, "two vectors of the same length"),
        ([0, 0, 1], [0, 1, 1], 2, "lower triangle"),
        ([0, 1, 2], [0, 1, 2], 2, "lower triangle"),
        ([0, 1, 1], [0, 1, 0], 2, "sorted"),
        ([0, 1, 1], [0, 1, 1], 2, "sorted"),
        ([0, 1], [0, 0], 2, "1 of 2 places"),
    ],
)
def test_patterns_that_are_none_are_refused(rows, cols, n, message):
    with pytest.raises(ValueError, match=message):
        choose(np.array(rows), np.array(cols), n)


def test_kinds_that_are_impossible_are_refused():
    with pytest.raises(ValueError, match="the kinds are dense, chain, arrow, sparse"):
        choose(*band(3, 1), kind="banded")
    with pytest.raises(ValueError, match=r"20,000 x 20,000 numbers.*kind=\"sparse\""):
        choose(*band(20_000, 1), kind="dense")
    with pytest.raises(ValueError, match="blocks that are too large"):
        choose(*bordered(20_000, 1), kind="chain")
    with pytest.raises(ValueError, match="latents to leave out"):
        choose(*lower(3, []), kind="arrow")
