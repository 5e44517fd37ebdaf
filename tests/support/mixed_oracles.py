"""Likelihoods of mixed models by full covariances and dense grids, without code of the library."""

import numpy as np
from scipy.special import logsumexp


def gaussian_covariance(groups, num_rows, sigma, weights=None):
    """V of y: groups are (levels of the rows, Z [rows, q], covariance [q, q])."""
    v = np.diag(sigma**2 / (np.ones(num_rows) if weights is None else weights))
    for labels, z, covariance in groups:
        same = np.asarray(labels)[:, None] == np.asarray(labels)[None, :]
        v = v + same * (z @ covariance @ z.T)
    return v


def gaussian_log_likelihood(y, x, beta, v):
    lower = np.linalg.cholesky(v)
    z = np.linalg.solve(lower, np.asarray(y) - x @ beta)
    return -0.5 * z @ z - np.sum(np.log(np.diag(lower))) - len(z) / 2 * np.log(2 * np.pi)


def restricted_log_likelihood(y, x, v):
    """Of the contrasts of y that x does not see, in the usual normalisation."""
    inverse = np.linalg.inv(v)
    information = x.T @ inverse @ x
    beta = np.linalg.solve(information, x.T @ inverse @ y)
    left = y - x @ beta
    value = np.linalg.slogdet(v)[1] + np.linalg.slogdet(information)[1] + left @ inverse @ left
    return -0.5 * (value + (len(y) - x.shape[1]) * np.log(2 * np.pi))


def one_factor_log_likelihood(labels, z, root, log_density, points=2001, reach=12.0):
    """By the trapezium rule over standard normal effects, one or two of every level.

    `log_density(rows, added)` is log p(y | added) of some rows, [rows, points].
    """
    t = np.linspace(-reach, reach, points)
    grids = np.meshgrid(*[t] * root.shape[0], indexing="ij")
    u = np.stack([grid.ravel() for grid in grids])
    prior = -0.5 * np.sum(u**2, axis=0) - 0.5 * len(u) * np.log(2 * np.pi)
    cell = len(u) * np.log(2 * reach / (points - 1))
    total = 0.0
    for level in np.unique(labels):
        rows = np.flatnonzero(labels == level)
        terms = log_density(rows, z[rows] @ (root @ u))
        total += logsumexp(terms.sum(axis=0) + prior) + cell
    return total
