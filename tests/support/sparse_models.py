"""Models whose Hessians have a known number of entries, each with the bug that it would show."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

RNG = np.random.default_rng(7)
FLOAT = jnp.zeros(()).dtype
FULL = "full"


class Model(NamedTuple):
    """A function of latents, a parameter and data.

    Attributes:
        function: `function(x, theta, *data)`.
        shapes: a tree of the latents' shapes.
        expected: entries of the whole Hessian, or FULL.
        guards: the bug that it would show.
        data: of the function.
    """

    function: Any
    shapes: Any
    expected: Any
    guards: str
    data: tuple[Any, ...] = ()


def crossed(*sizes, rows=60):
    """Random levels of some factors, and the entries of the Hessian of their sums."""
    levels = [RNG.integers(0, size, rows) for size in sizes]
    starts = np.cumsum([0, *sizes])
    shifted = [level + start for level, start in zip(levels, starts, strict=False)]
    pairs = {(int(a), int(b)) for u in shifted for v in shifted for a, b in zip(u, v, strict=True)}
    return levels, len(pairs | {(k, k) for k in range(starts[-1])})


def total(values):
    return jnp.sum(jnp.exp(values))


TWO, TWO_COUNT = crossed(14, 9, rows=40)
THREE, THREE_COUNT = crossed(20, 12, 8, rows=40)
MASK = np.asarray([True, False] * 6)
DESIGN = np.where(RNG.random((15, 12)) < 0.15, RNG.normal(size=(15, 12)), 0.0)
PRECISION = np.where(np.abs(np.subtract.outer(range(12), range(12))) == 3, -1.0, 0.0)
GROUPS = np.repeat(np.arange(6), 2)


def chain(x, theta):
    return jnp.sum((x[1:] - theta * x[:-1]) ** 2) + total(x)


def grid(x, theta, diagonal=0.0):
    value = total(x[1:] - theta * x[:-1]) + total(x[:, 1:] - theta * x[:, :-1])
    return value + (total(x[1:, 1:] - x[:-1, :-1]) + total(x[1:, :-1] - x[:-1, 1:])) * diagonal


def state_space(x, theta):
    def step(carry, latent):
        before, value = carry
        return (latent, value + (latent - theta * before) ** 2 + jnp.exp(latent)), None

    return jax.lax.scan(step, (x[0], jnp.zeros(())), x[1:])[0][1]


def innovations(x, theta):
    def step(state, shock):
        state = theta * state + shock
        return state, jnp.exp(state)

    return jnp.sum(jax.lax.scan(step, jnp.zeros(()), x)[1])


def two_lags(x, theta):
    # What is handed on is handed on once more: three latents apart.
    def step(carry, latent):
        one, two, three = carry
        return (latent, one, two), jnp.exp(latent - theta * three)

    return jnp.sum(jax.lax.scan(step, (x[0], x[1], x[2]), x[3:])[1])


def backwards(x, theta):
    def step(before, latent):
        return latent, (latent - theta * before) ** 4

    return jnp.sum(jax.lax.scan(step, x[-1], x[:-1], reverse=True)[1])


def loop_over_places(x, theta):
    def body(t, value):
        return value + (x[t] - theta * x[t - 1]) ** 2

    return jax.lax.fori_loop(1, 12, body, jnp.zeros(()))


def running_sums(x, theta):
    def step(value, latent):
        value = value + latent
        return value, jnp.exp(theta * value)

    return jnp.sum(jax.lax.scan(step, jnp.zeros(()), x)[1])


def edited_copies(x, theta):
    copied = x - jnp.roll(x, 1)

    def body(t, value):
        return value + jax.lax.dynamic_update_slice(copied, theta.reshape((1,)), (t,))

    return total(jax.lax.fori_loop(0, 6, body, jnp.zeros_like(x)))


def loop_in_loop(x, theta):
    def row(_, latents):
        def step(before, latent):
            return latent, jnp.exp(latent - theta * before)

        return None, jnp.sum(jax.lax.scan(step, latents[0], latents[1:])[1])

    return jnp.sum(jax.lax.scan(row, None, x)[1])


def iterated_root(x, theta):
    """Roots by Newton's method in a `while`, with a rule of its own for derivatives."""

    @jax.custom_jvp
    def root(a):
        def body(state):
            count, y = state
            return count + 1, y - (y**3 + y - a) / (3 * y**2 + 1)

        return jax.lax.while_loop(lambda s: s[0] < 25, body, (0, a))[1]

    @root.defjvp
    def root_jvp(primals, tangents):
        y = root(*primals)
        return y, tangents[0] / (3 * y**2 + 1)

    return jnp.sum(root(x) ** 2) * theta


def branches(x, theta):
    def left(x):
        return total(x[1:] + x[:-1])

    def right(x):
        return total(x[2:] + x[:-2])

    return jax.lax.cond(theta > 0, left, right, x)


def known_branch(x, theta, flag):
    return jax.lax.cond(flag > 0, lambda x: theta * total(x), lambda x: total(x[1:] + x[:-1]), x)


@jax.custom_jvp
def straight(x):
    """Linear by what it computes, quadratic by its rule."""
    return x


@straight.defjvp
def _straight_jvp(primals, tangents):
    return primals[0], tangents[0] * jnp.roll(primals[0], 1)


@jax.custom_vjp
def neighbors(x):
    """Linear by what it computes; by its rule the gradient looks at the neighbor."""
    return jnp.sum(x)


def _neighbors_back(x, slope):
    after = jnp.concatenate([x[1:], jnp.zeros((1,), x.dtype)])
    before = jnp.concatenate([jnp.zeros((1,), x.dtype), x[:-1]])
    return (slope * (x**3 + after + before),)


neighbors.defvjp(lambda x: (jnp.sum(x), x), _neighbors_back)


def written(x, theta, at):
    y = jnp.zeros((8,), x.dtype).at[at].add(x)
    return total(theta * y)


def replaced(x, theta):
    y = jnp.zeros((14,), x.dtype).at[2:].set(x).at[5].set(theta)
    return total(y[1:] - y[:-1])


def solved(x, theta):
    matrix = jnp.eye(4, dtype=x.dtype) * theta + jnp.outer(x, x)
    return jnp.sum(jnp.linalg.solve(matrix, jnp.ones((4,), x.dtype)))


def batch_of_factors(x, theta):
    def one(row):
        matrix = jnp.eye(2, dtype=x.dtype) * (2 + theta**2) + jnp.outer(row, row)
        factor = jnp.linalg.cholesky(matrix)
        return jnp.sum(jnp.log(jnp.diag(factor))) + jnp.sum(jnp.linalg.solve(matrix, row))

    return jnp.sum(jax.vmap(one)(x))


def conditional_autoregression(x, theta, weights):
    precision = theta * (jnp.diag(jnp.sum(jnp.abs(weights), 1)) + weights)
    return x @ precision @ x


def hierarchy(x, theta, groups):
    middle = x["top"] + x["middle"]
    return total(middle) + total(x["low"] - theta * middle[groups])


BAND = 3 * 12 - 2  # of twelve latents in a chain
MODELS = {
    "product of sums": Model(
        lambda x, theta: jnp.sum(x) ** 2 * theta, 9, FULL, "a product of two sums counted as linear"
    ),
    "independent": Model(
        lambda x, theta: total(theta * x), 9, 9, "a sum over all latents counted as a mixture"
    ),
    "linear": Model(
        lambda x, theta: theta * jnp.sum(x), 9, 9, "an empty Hessian without its diagonal"
    ),
    "chain": Model(chain, 12, BAND, "slices that lose their places"),
    "second order walk": Model(
        lambda x, theta: theta * jnp.sum(jnp.diff(x, n=2) ** 2), 14, 64, "differences twice"
    ),
    "seasonal": Model(
        lambda x, theta: total(x[4:] - x[:-4]) * theta, 14, 34, "neighbors that are not adjacent"
    ),
    "grid of four neighbors": Model(grid, (4, 5), 20 + 2 * 31, "axes taken in the wrong order"),
    "grid of eight neighbors": Model(
        lambda x, theta: grid(x, theta, 1.0), (5, 5), 25 + 2 * 72, "two slices at once"
    ),
    "two crossed factors": Model(
        lambda x, theta, i, j: total(x["u"][i] - theta * x["v"][j]),
        {"u": 14, "v": 9},
        TWO_COUNT,
        "indices from data that are not looked at",
        tuple(TWO),
    ),
    "three crossed factors": Model(
        lambda x, theta, i, j, k: total(x["a"][i] + theta * x["b"][j] * x["c"][k]),
        {"a": 20, "b": 12, "c": 8},
        THREE_COUNT,
        "products of latents",
        tuple(THREE),
    ),
    "nested factors": Model(
        hierarchy,
        {"top": (), "middle": 6, "low": 12},
        19 + 2 * (6 + 12 + 12),  # the top with all, and each of the low with one of the middle
        "a latent that is a number",
        (GROUPS,),
    ),
    "mask from data": Model(
        lambda x, theta, mask: jnp.sum(jnp.where(mask, jnp.exp(x * jnp.roll(x, 1)), theta)),
        12,
        # Six pairs, of which each latent is in one: 2 entries for each.
        24,
        "a mask from data whose values are not used",
        (MASK,),
    ),
    "mask by multiplication": Model(
        lambda x, theta, mask: jnp.sum(mask * jnp.exp(theta * x * jnp.roll(x, 1))),
        12,
        24,
        "zeros that are multiplied with",
        (MASK.astype(FLOAT),),
    ),
    "choice by data": Model(
        lambda x, theta, mask: total(jnp.where(mask, x * jnp.roll(x, 1), theta * x)),
        12,
        12 + 2 * 4,
        "the case that is not chosen",
        (np.arange(12) % 3 == 1,),
    ),
    "condition on the latents": Model(
        lambda x, theta: jnp.sum(jnp.where(x[1:] > x[:-1], x[1:] ** 2, theta * x[:-1] * x[1:])),
        12,
        BAND,
        "a branch not taken at the point of the trace",
    ),
    "piecewise linear": Model(
        lambda x, theta: jnp.sum(jnp.abs(x[1:] - x[:-1])) + jnp.sum(jnp.maximum(x, theta) ** 2),
        12,
        12,
        "kinks counted as curvature",
    ),
    "take": Model(
        lambda x, theta, at: total(jnp.take(x, at, fill_value=0) - theta * x),
        12,
        12 + 2 * 11,
        "indices outside, which `take` fills with zeros, as the first",
        (np.arange(12) + 1,),
    ),
    "added at indices": Model(
        written, 16, 32, "scatters without their indices", (np.arange(16) // 2,)
    ),
    "replaced at indices": Model(replaced, 12, 30, "what was overwritten still counted", ()),
    "segment sums": Model(
        lambda x, theta, groups: total(theta * jax.ops.segment_sum(x, groups, 6)),
        12,
        24,
        "sums of groups as sums of all",
        (GROUPS,),
    ),
    "indices from latents": Model(
        lambda x, theta: theta * x[jnp.argmax(x)] ** 2 + total(x[:3]), 12, FULL, "unknown indices"
    ),
    "scan": Model(state_space, 12, BAND, "an accumulated value that mixes all steps"),
    "scan of three lags": Model(two_lags, 14, 36, "what is handed on more than once"),
    "scan backwards": Model(backwards, 12, BAND, "steps in the wrong order"),
    "scan that accumulates": Model(innovations, 8, FULL, "what is handed on for ever"),
    "scan of running sums": Model(running_sums, 8, FULL, "sums that are read at every step"),
    "scan of edited copies": Model(edited_copies, 12, 36, "what windows are put into"),
    "scan in a scan": Model(
        loop_in_loop, (4, 5), 4 * 13, "entries of the inner loop taken for those of the outer"
    ),
    "fori_loop": Model(loop_over_places, 12, BAND, "counters that are not known"),
    "while_loop": Model(iterated_root, 9, 9, "a loop with an unknown number of rounds"),
    "cond": Model(branches, 12, 12 + 2 * 11 + 2 * 10, "one branch only"),
    "cond by data": Model(known_branch, 12, 12, "a branch that is never taken", (np.asarray(1),)),
    "vmap of rows": Model(
        lambda x, theta, i: jnp.sum(
            jax.vmap(lambda k, y: jnp.exp(x[k] * x[k + 6] - y * theta))(i, i * 1.0)
        ),
        12,
        24,
        "indices within `vmap`",
        (np.arange(6),),
    ),
    "vmap of columns": Model(
        lambda x, theta: jnp.sum(jax.vmap(lambda c: jnp.exp(jnp.sum(c) * theta), in_axes=1)(x)),
        (3, 5),
        5 * 9,
        "an axis that is not the first",
    ),
    "solve": Model(solved, 4, FULL, "equations whose matrix has latents"),
    "cholesky in rows": Model(batch_of_factors, (4, 2), 16, "matrices of a batch mixed"),
    "logsumexp": Model(
        lambda x, theta: theta * jax.scipy.special.logsumexp(x), 8, FULL, "a maximum taken off"
    ),
    "softmax in rows": Model(
        lambda x, theta: jnp.sum(theta * jax.nn.log_softmax(x, axis=1)[:, 0]),
        (4, 3),
        36,
        "rows mixed with each other",
    ),
    "sort": Model(
        lambda x, theta: jnp.sum(jnp.sort(x)[1:] * jnp.sort(x)[:-1]) * theta,
        8,
        FULL,
        "an order that holds at one point only",
    ),
    "cumsum": Model(
        lambda x, theta: total(theta * jnp.cumsum(x)), 9, FULL, "running sums of part of the line"
    ),
    "custom_jvp": Model(
        lambda x, theta: jnp.sum(straight(x)) * theta, 12, BAND + 2, "what is computed, not derived"
    ),
    "custom_vjp": Model(
        lambda x, theta: neighbors(x) * theta, 12, BAND, "what is computed, not derived, backwards"
    ),
    "softplus": Model(
        lambda x, theta: jnp.sum(jax.nn.softplus(x[1:] - theta * x[:-1])),
        12,
        BAND,
        "JAX's own rules",
    ),
    "checkpoint": Model(jax.checkpoint(chain), 12, BAND, "programs within programs"),
    "jit": Model(jax.jit(chain), 12, BAND, "programs within programs, compiled"),
    "design matrix": Model(
        lambda x, theta, z: total(z @ x * theta),
        12,
        int(np.count_nonzero(np.abs(DESIGN).T @ np.abs(DESIGN) + np.eye(12))),
        "zeros of a matrix from data",
        (DESIGN,),
    ),
    "precision with a parameter": Model(
        conditional_autoregression, 12, 12 + 18, "zeros that no parameter changes", (PRECISION,)
    ),
    "reversed slices": Model(
        lambda x, theta: total(x[::-1] * x * theta) + total(x[::2]), 12, 24, "negative strides"
    ),
    "stacked and tiled": Model(
        lambda x, theta: total(jnp.stack([x[1:], theta * x[:-1]]).sum(0)) + total(jnp.tile(x, 2)),
        12,
        BAND,
        "moves that newer versions of JAX have primitives for",
    ),
    "logsumexp of two": Model(
        lambda x, theta: jnp.sum(jax.scipy.special.logsumexp(jnp.stack([x, theta - x]), axis=0)),
        9,
        9,
        "mixtures, number by number",
    ),
    "scan over rows of indices": Model(
        lambda x, theta, at: jax.lax.scan(
            lambda value, row: (value + jnp.exp(theta * jnp.sum(x[row])), None), 0.0, at
        )[0],
        12,
        24,
        "sums of windows that a loop writes to",
        (np.arange(12).reshape(6, 2),),
    ),
    "loop that writes": Model(
        lambda x, theta: total(
            jax.lax.fori_loop(
                1, 12, lambda t, y: y.at[t].set(x[t] - theta * x[t - 1]), jnp.zeros((12,), FLOAT)
            )
        ),
        12,
        BAND,
        "an array that a loop fills step by step",
    ),
    "fourier transform of rows": Model(
        lambda x, theta: theta * jnp.sum(jnp.abs(3 + jnp.fft.rfft(x)) ** 2), (4, 3), 36, "batches"
    ),
    "triangular solve of columns": Model(
        lambda x, theta: total(
            jax.scipy.linalg.solve_triangular(jnp.tril(jnp.ones((3, 3), FLOAT)) * theta, x)
        ),
        (3, 4),
        4 * 9,
        "right-hand sides mixed with each other",
    ),
    "dictionary": Model(
        lambda x, theta: total(x["b"] * x["a"][0]) + total(theta * x["c"]),
        {"b": 3, "a": (2, 3), "c": 4},
        13 + 2 * 3,
        "leaves in another order than JAX's",
    ),
    "number and vector": Model(
        lambda x, theta: total(x["v"] - theta * x["center"]),
        {"center": (), "v": 9},
        10 + 2 * 9,
        "broadcasts of a number",
    ),
    "matrix of latents": Model(
        lambda x, theta, w: jnp.sum((x @ w) ** 2) * theta,
        (5, 3),
        5 * 9,
        "products that mix rows",
        (np.ones((3, 4)),),
    ),
    "special functions": Model(
        lambda x, theta: (
            jnp.sum(jax.scipy.special.gammaln(jnp.exp(x)) + jax.nn.relu(x) * theta)
            + jnp.sum(jax.scipy.special.betaln(jnp.exp(x[1:]), jnp.exp(x[:-1])))
        ),
        12,
        BAND,
        "functions of which little is known",
    ),
}


def latents(shapes):
    def is_shape(part):
        return isinstance(part, int | tuple)

    return jax.tree.map(
        lambda s: jnp.zeros(s if isinstance(s, tuple) else (s,), FLOAT), shapes, is_leaf=is_shape
    )


def as_data(data):
    return tuple(jnp.asarray(part, FLOAT) if part.dtype.kind == "f" else part for part in data)
