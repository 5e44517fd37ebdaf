"""A fit as an `arviz.InferenceData`: the latents' posterior, the data and the estimate.

to_arviz(fit)              in memory
write_netcdf(fit, path)    the file that ArviZ reads, without importing ArviZ: that takes longer
than a small fit
"""

import json
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.tree_util import tree_flatten_with_path

from marginax._version import __version__
from marginax.model.inputs import path_name

__all__ = ["to_arviz", "write_netcdf"]


class _Contents(NamedTuple):
    """What there is to tell, before it is in anybody's format.

    Attributes:
        groups: ArviZ's groups of variables by name, in its order.
        dims: names of the axes of the posterior's variables, after chain and draw.
        attributes: of the posterior.
    """

    groups: dict[str, Any]
    dims: dict[str, list[str]]
    attributes: dict[str, Any]


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
    groups, dims, attributes = _contents(fit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # more chains than draws is no mistake here
        return arviz.from_dict(**groups, dims=dims, posterior_attrs=attributes)


def write_netcdf(fit: Any, path: Path) -> None:
    """Writes what `to_arviz` returns to a file."""
    try:
        import h5netcdf
    except ImportError:
        raise ImportError(
            "This file needs h5netcdf, which comes with ArviZ. Install it with "
            "`pip install 'marginax[arviz]'`."
        ) from None
    groups, dims, attributes = _contents(fit)
    with h5netcdf.File(path, "w") as file:
        for group, variables in groups.items():
            there = file.create_group(group)
            first = ["chain", "draw"] if group == "posterior" else []
            there.attrs.update(attributes if group == "posterior" else {})
            for name, values in variables.items():
                values = np.atleast_1d(values)  # ArviZ has no single numbers
                axes = [*first, *_axes(name, values.ndim - len(first), dims)]
                for axis, length in zip(axes, values.shape, strict=True):
                    if axis not in there.dimensions:
                        there.dimensions[axis] = length
                        there.create_variable(axis, (axis,), data=np.arange(length))
                # Not compressed: digits of draws are random, and packing them takes longer.
                stored = values.astype(np.int8) if values.dtype == bool else values
                kept = there.create_variable(name, axes, data=stored)
                if values.dtype == bool:
                    kept.attrs["dtype"] = "bool"  # as xarray reads it


def _axes(name: str, count: int, dims: dict[str, list[str]]) -> list[str]:
    """Names of the axes of a variable, as ArviZ gives them."""
    given = dims.get(name, [])[:count]
    return [*given, *(f"{name}_dim_{i}" for i in range(len(given), count))]


def _contents(fit: Any) -> _Contents:
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
    groups = {"posterior": posterior, "observed_data": numeric, "constant_data": estimate}
    return _Contents({name: each for name, each in groups.items() if each}, dims, attributes)


def _named(tree: Any, base: str) -> dict[str, np.ndarray]:
    """Leaves by their paths; a tree that is one array has the base's name."""
    paths_and_leaves = tree_flatten_with_path(jax.device_get(tree))[0]
    return {path_name(path) if path else base: np.asarray(leaf) for path, leaf in paths_and_leaves}
