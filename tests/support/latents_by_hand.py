"""Latents with a full curvature, in NumPy: every derivative by hand, every factor a whole matrix.

    l(theta, x) = sum(y x - s e^x) - tau (x - mu)' K (x - mu) / 2 + n log(tau) / 2

with theta = (mu, log tau): counts for s = 1, and a Gaussian posterior for s = 0.
"""

import jax.numpy as jnp
import numpy as np

from marginax._core.factors import Factors, Raised, pattern_of
from marginax.likelihood.many_latents import Latents
from marginax.model.structure import Structure

K = np.array([[2.0, 0.5, 0.0], [0.5, 1.5, -0.3], [0.0, -0.3, 1.0]])
Y = np.array([1.0, 0.0, 3.0])
ROWS, COLS = np.tril_indices(3)
PATTERN = pattern_of(ROWS, COLS, 3)


def matrix(entries):
    """The symmetric matrix of entries on the pattern."""
    whole = np.zeros((3, 3))
    whole[ROWS, COLS] = whole[COLS, ROWS] = np.asarray(entries)
    return whole


def _root(entries):
    return np.linalg.cholesky(matrix(entries))


FACTORS = Factors(
    "dense",
    "dense",
    PATTERN,
    False,
    1.0,
    factor=lambda entries: entries,
    solve=lambda f, b: jnp.asarray(np.linalg.solve(matrix(f), np.asarray(b).T).T),
    half_solve=lambda f, b: jnp.asarray(np.linalg.solve(_root(f), np.asarray(b).T).T),
    log_determinant=lambda f: np.linalg.slogdet(matrix(f))[1],
    inverse_on_pattern=lambda f: jnp.asarray(np.linalg.inv(matrix(f))[ROWS, COLS]),
    whiten=lambda f, x: jnp.asarray(np.asarray(x) @ _root(f)),
    unwhiten=lambda f, u: jnp.asarray(np.linalg.solve(_root(f).T, np.asarray(u).T).T),
    positive=lambda f: bool(np.all(np.linalg.eigvalsh(matrix(f)) > 0)),
)


def log_joint(theta, x, counts=1.0):
    (mu, log_tau), x = np.asarray(theta), np.asarray(x)
    away, tau = x - mu, np.exp(log_tau)
    square = np.sum((away @ K) * away, axis=-1)
    rates = np.sum(Y * x - counts * np.exp(x), axis=-1)
    return rates - tau * square / 2 + 1.5 * log_tau


def score_x(theta, x, counts=1.0):
    (mu, log_tau), x = np.asarray(theta), np.asarray(x)
    return Y - counts * np.exp(x) - np.exp(log_tau) * (x - mu) @ K


def hessian_x(theta, x, counts=1.0):
    """H, minus the Hessian in x."""
    return counts * np.diag(np.exp(np.asarray(x))) + np.exp(theta[1]) * K


def score_theta(theta, x):
    (mu, log_tau), x = np.asarray(theta), np.asarray(x)
    away, tau = x - mu, np.exp(log_tau)
    square = np.sum((away @ K) * away, axis=-1)
    return np.stack([tau * np.sum(away @ K, axis=-1), 1.5 - tau * square / 2], axis=-1)


def cross_theta(theta, x):
    """The derivatives of grad_x l in theta, a row for each."""
    (mu, log_tau), x = np.asarray(theta), np.asarray(x)
    tau = np.exp(log_tau)
    return np.stack([tau * K.sum(axis=0), -tau * (x - mu) @ K])


def raised(entries, share):
    """As the library's, with shares of the diagonal that double."""
    share, diagonal = float(share), ROWS == COLS
    while True:
        lifted = np.asarray(entries) + share * np.maximum(np.abs(entries), 1.0) * diagonal
        if not np.all(np.isfinite(lifted)):
            return Raised(lifted, lifted, np.asarray(np.nan))
        if FACTORS.positive(lifted):
            return Raised(lifted, jnp.asarray(lifted), np.asarray(share))
        share = max(2 * share, 1e-3)


def latents(counts=1.0, **others):
    """All that `Latents` has; `others` instead."""

    def curvature(theta, x, data, maps):
        return jnp.asarray(hessian_x(theta, x, counts)[ROWS, COLS])

    def slopes(theta, x, data, maps, weights):
        weights, tau = np.asarray(weights), np.exp(theta[1])
        pull = counts * weights[ROWS == COLS] * np.exp(np.asarray(x))
        traced = np.array([0.0, tau * weights @ K[ROWS, COLS]])
        return jnp.asarray(score_theta(theta, x)), jnp.asarray(traced), jnp.asarray(pull)

    def complete(theta, x, data, maps, weights):
        tau, away = np.exp(theta[1]), np.asarray(x) - theta[0]
        of_both = -tau * np.sum(K @ away)
        of_tau = tau * (away @ K @ away + np.asarray(weights) @ K[ROWS, COLS]) / 2
        return jnp.asarray([[tau * K.sum(), of_both], [of_both, of_tau]])

    def mixed(theta, x, data, maps):
        of_curvature = np.stack([np.zeros(len(ROWS)), np.exp(theta[1]) * K[ROWS, COLS]])
        return jnp.asarray(cross_theta(theta, x)), jnp.asarray(of_curvature)

    def stein_scores(theta, x, data, away):
        away = np.asarray(away)
        there = np.asarray(x) + away
        _, of_curvature = mixed(theta, x, data, None)
        fields = [
            cross_theta(theta, x) - np.stack([matrix(d) @ a for d in of_curvature]) / 2
            for a in away
        ]
        parts = (
            log_joint(theta, there, counts), score_theta(theta, there),
            score_x(theta, there, counts), np.stack(fields),
        )  # fmt: skip
        return tuple(jnp.asarray(part) for part in parts)

    def means(theta, xs, data, maps):
        entries = [hessian_x(theta, x, counts)[ROWS, COLS] for x in np.asarray(xs)]
        scores = score_x(theta, xs, counts)
        return jnp.asarray(scores.mean(axis=0)), jnp.asarray(np.mean(entries, axis=0))

    structure = Structure(
        3, PATTERN, FACTORS, None, curvature,
        lambda theta, x, data, maps, weights: weights @ curvature(theta, x, data, maps),
        raised, "3 latents",
    )  # fmt: skip
    own = Latents(
        structure,
        None,
        jnp.zeros(3),
        lambda theta, x, data: (
            log_joint(theta, x, counts), jnp.asarray(score_x(theta, x, counts))
        ),
        curvature,
        slopes,
        lambda theta, x, data, w: jnp.asarray(cross_theta(theta, x) @ np.asarray(w)),
        complete,
        lambda theta, xs, data: jnp.asarray(log_joint(theta, xs, counts)),
        lambda theta, xs, data: jnp.asarray(score_x(theta, xs, counts)),
        mixed,
        lambda entries, xs: jnp.asarray([np.asarray(xs) @ matrix(one) for one in entries]),
        stein_scores,
        means,
        raised,
    )  # fmt: skip
    return own._replace(**others)
