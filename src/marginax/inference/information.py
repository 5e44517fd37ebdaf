"""The observed information: its inverse as a covariance, and directions it knows nothing of."""

import numpy as np

__all__ = ["delta_method", "inverse_information", "unbounded"]

NO_INFORMATION = 1e-7  # an eigenvalue, where 1 is what a coordinate says alone


def inverse_information(information: np.ndarray, edges: tuple[int, ...]) -> np.ndarray:
    """The covariance of free theta.

    Args:
        information: minus the Hessian of the log likelihood.
        edges: coordinates at a boundary. They have no standard error (NaN), and the others' are
            with these fixed.

    Returns:
        The covariance; infinite on the diagonal, and 0 beside it, where a direction has no
        information.
    """
    size = len(information)
    inside = [i for i in range(size) if i not in edges]
    covariance = np.zeros((size, size))
    covariance[list(edges), list(edges)] = np.nan
    part = information[np.ix_(inside, inside)]
    loose = unbounded(part)
    scale, w, v = _scaled(part)
    inverse = (v / np.where(w < NO_INFORMATION, np.inf, w)) @ v.T / np.outer(scale, scale)
    inverse[loose, :] = inverse[:, loose] = 0.0
    inverse[loose, loose] = np.inf
    covariance[np.ix_(inside, inside)] = inverse
    return covariance


def delta_method(jacobian: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """J C J', where coordinates without a finite variance hand theirs on to all they touch."""
    known = np.isfinite(np.diag(covariance))
    mapped = jacobian @ np.where(np.outer(known, known), covariance, 0.0) @ jacobian.T
    for i in np.flatnonzero(~known):
        touched = np.abs(jacobian[:, i]) > 0
        mapped[touched, touched] = covariance[i, i]
    return mapped


def unbounded(information: np.ndarray) -> np.ndarray:
    """Which coordinates have a share in a direction without information, whatever their units."""
    _, w, v = _scaled(information)
    share = np.sum(v[:, w < NO_INFORMATION] ** 2, axis=1)
    return np.asarray(share > 1e-6)


def _scaled(information: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The units that make the diagonal 1, and eigenvalues and eigenvectors in them."""
    scale = np.sqrt(np.maximum(np.abs(np.diag(information)), 1e-300))
    scaled = information / np.outer(scale, scale)
    return scale, *np.linalg.eigh((scaled + scaled.T) / 2)
