"""Where the likelihood of a linear mixed model is highest.

The climb is in the entries of Lambda (`profiled`), by quasi-Newton steps with exact gradients, and
ends with Newton's.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from marginax.formulas.covariances import Layout
from marginax.formulas.linear_products import LinearModel
from marginax.formulas.profiled import Profile

__all__ = ["Maximum", "differences", "floored", "maximum_of", "profile_at"]

LEAST = 1e-6  # a diagonal entry of Lambda, in units of sigma and of Z's columns, is at least this
STEP = 1e-4  # of differences of gradients, in entries of Lambda or in phi
LOW, AS_HIGH = 0.03, 1e-6  # an entry that may be 0; a deviance that is no higher there
AT_REST = 1e-5  # in standard errors: Newton's next step


class Maximum(NamedTuple):
    """Where the likelihood is highest.

    Attributes:
        flat: the free entries of Lambda, those at the boundary 0.
        profile: there.
        is_zero: which entries are at the boundary.
        settled: whether Newton's next step is negligible.
    """

    flat: np.ndarray
    profile: Profile
    is_zero: np.ndarray
    settled: bool


def floored(layout: Layout, flat: np.ndarray) -> np.ndarray:
    """Lambda's entries with a diagonal that is not quite 0, where there are no derivatives."""
    low = layout.is_diagonal() & (np.abs(flat) < LEAST)
    return np.where(low, LEAST, flat)


def profile_at(model: LinearModel, layout: Layout, flat: np.ndarray, reml: bool) -> Profile:
    """The likelihood at entries of Lambda, all else profiled out."""
    return Profile.at(model, tuple(layout.triangles(flat)), reml)


def maximum_of(model: LinearModel, layout: Layout, reml: bool) -> Maximum:
    """The highest point, with the entries of Lambda that are 0 there."""
    from scipy.optimize import minimize  # slow to import

    def deviance(flat: np.ndarray) -> tuple[float, np.ndarray]:
        profile = profile_at(model, layout, floored(layout, flat), reml)
        return profile.deviance(), layout.flat(profile.gradient())

    # No bounds: Lambda with another sign of a column is the same model, and a bound at 0 would be
    # an end where the way on is through it, to another sign of what is below.
    start = np.where(layout.is_diagonal(), 1.0, 0.0)
    options = {"maxiter": 500, "ftol": 1e-13, "gtol": 1e-7}
    found = minimize(deviance, start, jac=True, method="L-BFGS-B", options=options)
    flat = _with_positive_diagonal(layout, found.x)
    zero = _zeros(model, layout, flat, reml)
    flat = np.where(zero, 0.0, flat)
    flat, settled = _newton(deviance, flat, ~zero)
    flat = _with_positive_diagonal(layout, flat)
    return Maximum(flat, profile_at(model, layout, flat, reml), zero, settled)


def _with_positive_diagonal(layout: Layout, flat: np.ndarray) -> np.ndarray:
    """The same covariances, with columns of Lambda that have a positive diagonal."""
    triangles = layout.triangles(flat)
    return layout.flat([one * np.where(np.diag(one) < 0, -1.0, 1.0) for one in triangles])


def _zeros(model: LinearModel, layout: Layout, flat: np.ndarray, reml: bool) -> np.ndarray:
    """Diagonal entries that may as well be 0: the deviance is no higher there."""
    diagonal, zero = layout.is_diagonal(), np.zeros(len(flat), bool)
    here = profile_at(model, layout, flat, reml).deviance()
    for k in np.flatnonzero(diagonal & (flat < LOW)):
        moved = np.where(zero, 0.0, flat)
        moved[k] = 0.0
        zero[k] = profile_at(model, layout, moved, reml).deviance() <= here + AS_HIGH
    return zero


def _newton(
    deviance: Callable[[np.ndarray], tuple[float, np.ndarray]], flat: np.ndarray, free: np.ndarray
) -> tuple[np.ndarray, bool]:
    """Newton's last steps in the free entries, and whether the next one is negligible."""
    places = np.flatnonzero(free)
    if len(places) == 0:
        return flat, True
    value, gradient = deviance(flat)
    for _ in range(8):
        hessian = differences(lambda at: deviance(at)[1][places], flat, places)
        w, v = np.linalg.eigh(hessian)
        along = v.T @ gradient[places]
        w = np.maximum(np.abs(w), 1e-10 * np.abs(w).max())
        if np.max(np.abs(along) / np.sqrt(w)) < AT_REST:
            return flat, True
        step, length = v @ (along / w), 1.0
        for _ in range(10):
            moved = flat.copy()
            moved[places] -= length * step
            there, slope = deviance(moved)
            if there <= value + 1e-9:
                flat, value, gradient = moved, there, slope
                break
            length /= 4
        else:
            return flat, bool(np.max(np.abs(along) / np.sqrt(w)) < 100 * AT_REST)
    return flat, bool(np.max(np.abs(along) / np.sqrt(w)) < 100 * AT_REST)


def differences(
    gradient: Callable[[np.ndarray], np.ndarray], at: np.ndarray, places: np.ndarray
) -> np.ndarray:
    """The second derivatives in some coordinates, from the gradient in these to either side."""
    rows = []
    for k in places:
        step = np.zeros(len(at))
        step[k] = STEP * max(1.0, abs(at[k]))
        rows.append((gradient(at + step) - gradient(at - step)) / (2 * step[k]))
    found = np.array(rows)
    return (found + found.T) / 2
