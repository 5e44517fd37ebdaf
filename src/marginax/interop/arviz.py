"""A fit as an `arviz.InferenceData`: the latents' posterior, the data and the estimate."""

import json
import warnings
from typing import Any

import jax
import numpy as np
from jax.tree_util import tree_flatten_with_path

from marginax._version import __version__
from marginax.model.inputs import path_name

__all__ = ["to_arviz"]


def to_arviz(fit: Any) -> Any:
    """Draws of the latents at the estimate, constrained, with a dimension over groups."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # ArviZ announces its next version
        try:
            import arviz
        except ImportError:
            raise ImportError(
                "to_arviz needs ArviZ. Install it with `pip install 'marginax[arviz]'`."
            ) from None
    posterior = _named(fit.posterior, "latent")
    dims = {}
    if fit.problem.num_groups is not None:
        dims = {
            name: ["group", *(f"{name}_dim_{i}" for i in range(values.ndim - 3))]
            for name, values in posterior.items()
        }
    data = _named(fit.problem.data, "data")
    numeric = {name: values for name, values in data.items() if values.dtype.kind in "fiub"}
    estimate = {f"theta_{name}": values for name, values in _named(fit.theta, "theta").items()}
    attributes = {
        "inference_library": "marginax",
        "inference_library_version": __version__,
        "converged": int(fit.converged),
        "ok": int(fit.ok),
        "warnings": json.dumps(list(fit.warnings)),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # more chains than draws is no mistake here
        return arviz.from_dict(
            posterior=posterior,
            observed_data=numeric or None,
            constant_data=estimate,
            dims=dims,
            posterior_attrs=attributes,
        )


def _named(tree: Any, base: str) -> dict[str, np.ndarray]:
    """Leaves by their paths; a tree that is one array has the base's name."""
    paths_and_leaves = tree_flatten_with_path(jax.device_get(tree))[0]
    return {path_name(path) if path else base: np.asarray(leaf) for path, leaf in paths_and_leaves}
