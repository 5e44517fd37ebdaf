"""Modes and widths of blocks where both are known: Gaussians, powers, kinks, edges and noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marginax.likelihood.modes import _is_resolved, _rise, _widths, climb_blocks, hessians

pytestmark = pytest.mark.slow


def climbed(log_densities, start, max_steps=100):
    return jax.jit(lambda x: climb_blocks(log_densities, x, max_steps))(jnp.asarray(start))


def in_rows(*functions):
    """A log density of one latent for every block."""
    return lambda x: jnp.stack([function(x[i, 0]) for i, function in enumerate(functions)])


# Derivatives


def test_the_hessian_of_every_block_is_its_own():
    weights = jnp.asarray([1.0, 10.0])

    def log_densities(x):
        return weights * (x[:, 0] ** 2 * x[:, 1] + x[:, 2] ** 3)

    x = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    expected = [
        w * np.array([[2 * b, 2 * a, 0.0], [2 * a, 0.0, 0.0], [0.0, 0.0, 6 * c]])
        for w, (a, b, c) in zip([1.0, 10.0], x, strict=True)
    ]
    actual = jax.jit(lambda x: hessians(log_densities, x))(x)
    np.testing.assert_allclose(actual, expected)


# Climbs


UNITS = np.array([[1.0, 1.0], [1e-6, 1e3], [1e8, 1e-2], [1.0, 1.0]])
MEANS = UNITS * np.array([[1.0, -2.0], [0.0, 5.0], [-3.0, 0.5], [0.0, 0.0]])
CORRELATED = np.array([[2.0, 0.9], [0.9, 0.5]])
PRECISIONS = np.stack([np.linalg.inv(CORRELATED)] * 3 + [np.ones((2, 2))])  # the last is flat


def test_a_gaussian_is_known_after_one_step_in_any_units():
    def gaussians(x):
        z = (x - MEANS) / UNITS
        return 7.0 - 0.5 * jnp.einsum("bp,bpq,bq->b", z, jnp.asarray(PRECISIONS), z)

    top = climbed(gaussians, MEANS + UNITS * np.array([[3.0, 4.0]]), 1)
    np.testing.assert_allclose((top.at.mode / UNITS)[:3], (MEANS / UNITS)[:3], atol=1e-9)
    root = np.asarray(top.at.root)
    covariance = root @ np.swapaxes(root, 1, 2) / UNITS[:, :, None] / UNITS[:, None, :]
    np.testing.assert_allclose(covariance[:3], np.stack([CORRELATED] * 3), rtol=1e-9)
    volume = np.linalg.slogdet(CORRELATED)[1] / 2 + np.log(UNITS).sum(axis=1)
    np.testing.assert_allclose(top.at.log_root[:3], volume[:3], rtol=1e-9)
    np.testing.assert_allclose(top.value, 7.0)
    np.testing.assert_allclose(top.rise[:3], -0.5 * 0.05**2, rtol=1e-6)
    # A direction that is flat has a very long width, and the other its own.
    assert abs(top.at.mode[3].sum()) < 1e-9
    lengths = np.sort(np.linalg.norm(root[3], axis=0))
    assert lengths[0] == pytest.approx(0.5**0.5)
    assert lengths[1] > 7e5
    np.testing.assert_allclose(top.at.log_root[3], np.linalg.slogdet(root[3])[1])


@jax.jit
def after_one_step(precisions, start):
    """Of Gaussians around 0."""
    return climb_blocks(lambda x: -0.5 * jnp.einsum("bp,bpq,bq->b", x, precisions, x), start, 1)


def test_every_block_has_the_width_that_it_has_alone():
    """In a direction that is flat too, where it is 1e6 for want of another number."""
    kinds = jnp.asarray([[[1.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]])
    start = jnp.zeros((2, 2))
    both = after_one_step(kinds, start).at
    for k in range(2):
        alone = after_one_step(kinds[np.array([k, k])], start).at
        np.testing.assert_allclose(both.log_root[k], alone.log_root[k], rtol=1e-9)
        np.testing.assert_allclose(both.root[k], alone.root[k], rtol=1e-9)


def test_a_gaussian_is_known_after_one_step_from_however_far():
    start = jnp.asarray([[3e6, 0.0], [-4e3, 5e7]])
    top = after_one_step(jnp.stack([jnp.eye(2)] * 2), start)
    np.testing.assert_allclose(top.at.mode, 0.0, atol=1e-7)


def test_a_climb_ends_where_all_are_at_rest_however_many_steps_it_may_take():
    evaluated = []

    def seen(x):
        jax.debug.callback(lambda: evaluated.append(1))
        return -5.0 - 0.5 * jnp.sum((x - 3.0) ** 2, axis=1)

    top = climbed(seen, [[0.0], [1e3]], 500)
    jax.effects_barrier()
    np.testing.assert_allclose(top.at.mode, 3.0)
    assert len(evaluated) < 40


def test_a_top_is_reached_though_other_directions_are_flat():
    """There a climb knows of no length, and must not go as far as numbers go."""

    def heights(x, weights):
        return -jnp.sqrt(1.0 + (x @ weights) ** 2)

    climb = jax.jit(lambda x, weights: climb_blocks(lambda x: heights(x, weights), x).value)
    for weights in ([1.0, 1.0, 1.0], [1.0, 2.0, 3.0], [1.0, -1.0, 0.5], [0.3, 0.7, -1.1]):
        value = climb(jnp.asarray([[3.0, 4.0, 5.0]]), jnp.asarray(weights))
        np.testing.assert_allclose(value, -1.0, rtol=1e-9)


def test_a_climb_in_single_precision_stays_in_it():
    def found(x):
        return climb_blocks(lambda x: -jnp.sum(x**4, axis=1), x)

    shapes = jax.eval_shape(found, jax.ShapeDtypeStruct((3, 2), jnp.float32))
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype(jnp.float32)}


def test_beside_a_slope_a_width_is_that_in_which_the_density_changes_by_e():
    """Of many latents, where it is taken as it is."""
    slopes = np.array([0.5, *range(2, 12)])
    top = climbed(lambda x: -0.5 * jnp.sum(x**2, axis=1), slopes[None], 0)
    widths = 1 / np.maximum(slopes, 1.0)
    np.testing.assert_allclose(np.linalg.norm(top.at.root[0], axis=1), widths, rtol=1e-9)
    np.testing.assert_allclose(top.at.log_root, [np.log(widths).sum()], rtol=1e-9)


def tail(power):
    return lambda x: -(jnp.abs(x) ** power)


# Newton's method goes from x to x - x / (power - 1). With a power of 4 that is 2 x / 3, always
# better. With 1.4 it is -1.5 x, and x (1 - 2.5 / (1 + lambda)) when damped: no better until lambda,
# in tens from 0.001, is 1. Then a tenth of it is tried, in vain, and 1 again.
@pytest.mark.parametrize(
    ("steps", "quick", "slow"),
    [(0, 3.0, 3.0), (1, 2.0, 3.0), (5, 32 / 81, -0.75), (7, 128 / 729, 0.1875)],
)
def test_steps_are_damped_after_a_loss_and_less_so_after_a_gain(steps, quick, slow):
    slopes = [lambda x: x / 100.0, lambda x: -5.0 * x, lambda x: 1e-20 * x]
    top = climbed(in_rows(tail(4.0), tail(1.4), *slopes), [[3.0]] * 5, steps)
    np.testing.assert_allclose(top.at.mode[:2, 0], [quick, slow], rtol=1e-6)
    np.testing.assert_allclose(top.value[:2], [-(quick**4), -(abs(slow) ** 1.4)], rtol=1e-6)
    if steps == 0:
        # On a slope the width is where the density changes by e.
        np.testing.assert_allclose(np.abs(top.at.root[2:, 0, 0]), [100.0, 0.2, 1e20], rtol=1e-6)
        np.testing.assert_allclose(top.rise[2:], 0.05, rtol=1e-6)


def test_a_mode_is_found_to_the_last_digits_over_which_the_density_changes():
    def skew(x):
        return 3.0 * x - jnp.exp(x)

    def uphill_from_a_minimum(x):
        return jnp.logaddexp(-0.5 * (x - 4.0) ** 2, -0.5 * (x + 4.0) ** 2)

    def far(x):
        return -jnp.sqrt(1.0 + (x - 30.0) ** 2)

    def beside_a_kink(x):
        return -jnp.abs(x - 1.0) / 0.01

    def everywhere_alike(x):
        return 0.0 * x + 2.0

    def beyond_numbers(x):
        return -0.5 * ((x - 1.0) / 1e-13) ** 2

    start = [[-3.0], [0.1], [0.0], [-4.0], [5.0], [1.0]]
    functions = skew, uphill_from_a_minimum, far, beside_a_kink, everywhere_alike, beyond_numbers
    top = climbed(in_rows(*functions), start)
    np.testing.assert_allclose(top.at.mode[:3, 0], [np.log(3.0), 4.0, 30.0], atol=1e-7)
    assert abs(top.at.mode[3, 0] - 1.0) < 1e-4  # a hundredth of its width
    assert top.at.mode[4, 0] == 5.0
    widths = np.abs(top.at.root[:, 0, 0])
    np.testing.assert_allclose(widths[:3], [3**-0.5, 1.0, 1.0], rtol=1e-6)
    # Where it is flat the width is that of an eigenvalue of 1e-12.
    np.testing.assert_allclose(widths[3:5], [0.01, 1e6])
    assert np.all(np.asarray(top.rise)[:4] < 0)
    assert top.rise[4] == 0.0
    assert top.value[4] == 2.0
    np.testing.assert_allclose(top.at.log_root[:5], np.log(widths[:5]), rtol=1e-9, atol=1e-9)
    assert top.at.log_root[5] == -np.inf  # numbers do not tell it from nothing


@pytest.mark.parametrize(("size", "is_corrected"), [(10, True), (11, False)])
def test_widths_of_few_latents_are_corrected(size, is_corrected):
    top = climbed(lambda x: -jnp.sum(x**4, axis=1), np.zeros((1, size)), 0)
    lengths = np.linalg.norm(top.at.root[0], axis=0)
    falls = lengths**4
    assert np.all((falls >= 0.125) & (falls <= 2.0)) == is_corrected
    if not is_corrected:
        np.testing.assert_allclose(lengths, 1e6)


# Rises


def rise(log_densities, root, gradient):
    """From the point 0."""
    root, gradient = jnp.asarray(root), jnp.asarray(gradient)

    def of(root):
        x = jnp.zeros_like(gradient)
        return _rise(log_densities, x, log_densities(x), root, gradient)

    return jax.jit(of)(root)


def test_a_rise_is_what_a_twentieth_of_a_width_to_either_side_gains():
    ramps = in_rows(
        lambda x: 3.0 * x,
        lambda x: -3.0 * x,
        lambda x: 7.0 + 3.0 * x,
        lambda x: jnp.where(x > 0.01, jnp.nan, -x),  # a side without a density is none
    )
    root = np.array([2.0, 2.0, 10.0, 1.0])[:, None, None]
    np.testing.assert_allclose(rise(ramps, root, np.zeros((4, 1))), [0.3, 0.3, 1.5, 0.05])


def test_what_is_undefined_nearby_is_no_rise():
    low = in_rows(lambda x: jnp.where(x > 0.01, jnp.nan, -x) - 7.0)
    np.testing.assert_allclose(rise(low, [[[1.0]]], np.zeros((1, 1))), [0.05])


def test_a_rise_is_the_largest_along_the_columns_of_the_root():
    actual = rise(lambda x: x[:, 0] - x[:, 1], [[[1.0, 3.0], [0.0, 5.0]]], np.zeros((1, 2)))
    np.testing.assert_allclose(actual, [0.05 * 2.0])


@pytest.mark.parametrize("size", [10, 11])
def test_a_rise_of_many_latents_is_what_the_gradient_says(size):
    root = np.diag(np.arange(1.0, size + 1.0)) + np.eye(size, k=1)
    actual = rise(lambda x: -jnp.sum(x**2, axis=1), root[None], np.ones((1, size)))
    first_column = -(0.05**2)
    expected = 0.05 * np.linalg.norm(np.ones(size) @ root) if size > 10 else first_column
    np.testing.assert_allclose(actual, [expected])


# Widths


def factors(*cases):
    """What one latent's width is multiplied with, of a density and a width for every block."""
    log_densities = in_rows(*[function for function, _ in cases])
    mode = jnp.zeros((len(cases), 1))
    root = jnp.array([width for _, width in cases])[:, None, None]
    return np.asarray(jax.jit(lambda r: _widths(log_densities, mode, log_densities(mode), r))(root))


def test_a_width_is_corrected_where_the_density_falls_by_too_little_or_too_much():
    """Within a factor of two of a standard deviation it is left; factors are 4 and 0.1 at most."""
    roots = jnp.array([1.0, 0.5, 2.0, 1.5, 3.0, 0.4, 0.1, 1e-3, 1e3, 0.175])[:, None, None]
    mode = jnp.ones((10, 1))
    actual = jax.jit(
        lambda r: _widths(lambda x: 8.0 - 0.5 * (x[:, 0] - 1.0) ** 2, mode, jnp.full(10, 8.0), r)
    )(roots)
    expected = [1.0, 1.0, 1.0, 1.0, 1 / 3, 2.5, 10.0, 1e3, 1e-3, 4.0]
    np.testing.assert_allclose(actual[:, 0], expected)


def one_sided(x):
    return jnp.where(x < 0, -jnp.inf, -x)


def undefined_on_one_side(x):
    return jnp.where(x < 0, jnp.nan, -x)


def box(x):
    return jnp.where(jnp.abs(x) < 5.0, -0.5 * x**2, -jnp.inf)


def skew(x):
    return jnp.where(x > 0, -5.0 * x, 0.2 * x)


def flat(x):
    return 0.0 * x


def test_widths_at_edges_and_kinks():
    cases = {
        # Of a density with an edge the one side counts.
        (one_sided, 1.0): 1.0,
        (one_sided, 4.0): (0.5 / 4) ** 0.5,
        (one_sided, -3.0): (0.5 / 3) ** 0.5,
        (undefined_on_one_side, 4.0): (0.5 / 4) ** 0.5,
        # Beyond both edges nothing is known, and a width is a tenth of it.
        (box, 100.0): 0.01,
        (box, 6.0): 0.1,
        (box, 4.9): 1 / 4.9,
        # Of both sides the mean.
        (skew, 1.0): (0.5 / 2.6) ** 0.5,
        # One that never falls keeps its width.
        (flat, 5.0): 1.0,
    }
    np.testing.assert_allclose(factors(*cases)[:, 0], list(cases.values()))


def test_in_a_hollow_a_width_is_where_the_density_falls_beyond():
    """At 0.3 it is higher than in the middle; at four times that it is 0.63 lower."""
    np.testing.assert_allclose(factors((lambda x: x**2 - x**4, 0.3)), [[4.0]])


def test_every_column_of_a_root_has_its_own_factor():
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    roots = jnp.asarray(np.stack([turn * [3.0, 1.0], turn * [1.0, 0.25], turn * [4.0, 5.0]]))
    mode = jnp.ones((3, 2))

    def gaussian(x):
        return -0.5 * jnp.sum((x - 1.0) ** 2, axis=1)

    actual = jax.jit(lambda r: _widths(gaussian, mode, jnp.zeros(3), r))(roots)
    np.testing.assert_allclose(actual, [[1 / 3, 1.0], [1.0, 4.0], [0.25, 0.2]])


# Numbers that cannot tell a density


def resolved(*cases, dtype=float):
    """Whether a density of one latent is, of a density, a mode and a width for every block."""
    functions, modes, roots = zip(*cases, strict=True)
    mode, root = np.asarray(modes, dtype)[:, None], np.asarray(roots, dtype)[:, None, None]
    log_densities = in_rows(*functions)
    return jax.jit(lambda m, r: _is_resolved(log_densities, m, r))(mode, root).tolist()


def gaussian(x):
    return -0.5 * x**2


def kinked(*places):
    return lambda x: gaussian(x) - sum(jnp.abs(x - place) for place in places)


def noisy(size, at):
    return lambda x: gaussian(x) + at + size * jnp.sin(1e6 * x)


def narrow(width):
    return lambda x: gaussian((x - 3.0) / width)


def narrow_box(x):
    return jnp.where((x > -1.2995) & (x < 1.2035), gaussian(x), -jnp.inf)


PLACES = -2.098, -1.298, 1.202, 2.002  # in the middle of five points each


def test_what_is_no_noise():
    cases = [
        (gaussian, 0.0, 1.0),
        (narrow(1e-4), 3.0, 1e-4),
        (lambda x: -(jnp.abs(x) ** 3) + x**2 / 2, 0.0, 1.0),
        # One kink, or more of them elsewhere.
        *[(kinked(place), 0.0, 1.0) for place in (*PLACES, 0.0)],
        (kinked(-2.5, -1.5, 0.0, 1.0, 1.6, 3.0), 0.0, 1.0),
        # Edges, between points and far from them.
        (narrow_box, 0.0, 1.0),
        (one_sided, 0.0, 1.0),
        (undefined_on_one_side, 0.0, 1.0),
        # Little beside a large value.
        (noisy(1e-3, 1e12), 0.0, 1.0),
        (noisy(1e-3, -1e12), 0.0, 1.0),
        (lambda x: gaussian(x) + 1e11, 0.0, 1.0),
    ]
    assert all(resolved(*cases))


def test_what_is_noise():
    cases = [
        (narrow(1e-13), 3.0, 1e-13),
        # Two kinks, wherever they are looked for.
        (kinked(*PLACES[:2]), 0.0, 1.0),
        (kinked(*PLACES[1:3]), 0.0, 1.0),
        (kinked(*PLACES[2:]), 0.0, 1.0),
        (noisy(1e-3, 0.0), 0.0, 1.0),
        (noisy(1e-3, 1e8), 0.0, 1.0),
    ]
    assert not any(resolved(*cases))


def test_it_is_looked_at_the_same_distance_away_whatever_the_number_of_latents():
    def log_densities(x):
        place = jnp.array([2.002, 2.1])
        u = (x[:, 0] + x[:, 1]) / 2**0.5
        return -jnp.abs(u - place) - jnp.abs(u - 1.202)

    root = jnp.stack([jnp.eye(2)] * 2)
    actual = jax.jit(lambda m: _is_resolved(log_densities, m, root))(jnp.zeros((2, 2)))
    assert actual.tolist() == [False, True]


def test_what_is_little_beside_the_values_of_one_block_is_noise_in_another():
    cases = [(noisy(1e-3, 0.0), 0.0, 1.0), (noisy(1e-3, 1e12), 0.0, 1.0)]
    assert resolved(*cases) == [False, True]


def test_it_is_looked_at_along_the_sum_of_the_columns_of_a_root():
    def log_densities(x):
        return -sum(jnp.abs(x[:, 0] - 2**0.5 * place) for place in PLACES[2:])

    root = jnp.asarray([[[1.0, 1.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]]])
    actual = jax.jit(lambda r: _is_resolved(log_densities, jnp.zeros((2, 2)), r))(root)
    assert actual.tolist() == [False, True]


def test_where_nothing_moves_the_width_may_be_too_small_for_numbers():
    cases = [(flat, 1.0, 1e-10), (flat, 1.0, 1e-12), (flat, -1.0, 1e-12), (flat, 0.0, 1e-12)]
    assert resolved(*cases) == [True, False, False, True]
    cases = [(flat, 1.0, 2e-4), (flat, 1.0, 5e-5)]
    assert resolved(*cases, dtype=np.float32) == [True, False]


def test_the_width_of_every_coordinate_counts():
    tiny = 1e-12
    root = [[[1.0, 0.0], [0.0, tiny]], [[tiny, tiny], [1.0, 1.0]], [[tiny, 1.0], [tiny, 1.0]]]
    even = jax.jit(lambda r: _is_resolved(lambda x: 0.0 * x[:, 0], jnp.ones((3, 2)), r))
    assert even(jnp.asarray(root)).tolist() == [False, False, True]
