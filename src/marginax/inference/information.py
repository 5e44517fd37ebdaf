"""The observed information: its inverse as a covariance, and directions it knows nothing of."""

import numpy as np

__all__ = ["delta_method", "inverse_information", "unbounded"]


def inverse_information(information: np.ndarray, edges: tuple[int, ...]) -> np.ndarray:
    """The covariance of free theta.

    Args:
        information: minus the Hessian of the log likelihood.
        edges: coordinates at a boundary. They have no standard error (NaN), and the others' are
            with these fixed.

    Returns:
        The covariance; its diagonal is infinite where a direction has no information.
    """
    size = len(information)
    inside = [i for i in range(size) if i not in edges]
    covariance = np.zeros((size, size))
    covariance[list(edges), list(edges)] = np.nan
    part = information[np.ix_(inside, inside)]
    loose = unbounded(part)
    w, v = np.linalg.eigh((part + part.T) / 2)
    inverse = (v / np.where(w > 0, w, np.inf)) @ v.T
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
    """Which coordinates have a share in a direction without information."""
    scale = np.sqrt(np.maximum(np.abs(np.diag(information)), 1e-300))
    w, v = np.linalg.eigh(information / np.outer(scale, scale))
    loose = w < 1e-7
    share = np.sum((v[:, loose] / scale[:, None]) ** 2, axis=1)
    largest = share.max(initial=0.0)
    return share > 1e-6 * largest if largest > 0 else np.zeros(len(scale), bool)
