"""What an information matrix says whatever the units: its eigenvalues, and standard errors."""

import numpy as np

__all__ = ["marginal_errors", "scaled_eigen"]


def scaled_eigen(information: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The units that make the diagonal 1, and eigenvalues and eigenvectors in them."""
    scale = np.sqrt(np.maximum(np.abs(np.diag(information)), 1e-300))
    scaled = information / np.outer(scale, scale)
    return scale, *np.linalg.eigh((scaled + scaled.T) / 2)


def marginal_errors(information: np.ndarray) -> np.ndarray:
    """Standard errors, the other parameters not fixed; very large where nothing is known."""
    scale, w, v = scaled_eigen(information)
    variance = np.sum(v**2 / np.maximum(w, np.finfo(float).eps), axis=1)
    return np.asarray(np.sqrt(variance) / scale)
