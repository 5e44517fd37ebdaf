"""A fit as one .npz file and back: arrays and plain JSON, nothing that could run code.

The problem is code and data of yours and is not in the file; whoever reads it brings the problem.
Checksums of its data and of what its log joint computes tell whether it is the same, and everything
in the file must have the shape that it has for this problem.
"""

import json
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np

from marginax._core.files import write_atomically
from marginax._core.fingerprints import digest, program_digest
from marginax.diagnostics.cloud import CloudCheck
from marginax.likelihood.posterior import Posterior
from marginax.likelihood.results import Likelihood
from marginax.model.parameter_table import parameter_names
from marginax.model.problem import Problem
from marginax.model.transforms.trees import is_transform
from marginax.running.result import Run

__all__ = ["read_fit", "write_fit"]

FORMAT = 4
SINGLE = {"f": np.float32, "i": np.int32, "u": np.uint32}  # as JAX has them without float64
_TREES = ("theta", "particles", "history")  # of the run; all but the particles are like theta
# What is written as words, and what each must be.
_OF_FIT = {
    **{"start": int, "num_starts": int, "num_agreeing": int, "boundaries": list[int]},
    **{"method": str, "converged": bool, "warnings": list[str], "notes": list[str]},
    "timings": dict,
}
_OF_RUN = {
    **{"status": str, "reason": str, "num_steps": int, "timings": dict, "starts_agree": bool},
    **{"statuses": list[str], "reasons": list[str], "steps_per_start": list[int]},
}


def write_fit(fit: Any, path: str | Path) -> None:
    """Writes a fit; an existing file is replaced only when the new one is complete."""
    arrays: dict[str, np.ndarray] = {"unconstrained_theta": fit.unconstrained_theta}
    for name in ("information", "score_covariance"):
        if getattr(fit, name) is not None:
            arrays[name] = getattr(fit, name)
    words: dict[str, Any] = {
        "format": FORMAT,
        "problem": fingerprint(fit.problem),
        **{name: getattr(fit, name) for name in _OF_FIT},
        "run": {name: getattr(fit.run, name) for name in _OF_RUN},
        "cloud_checks": [asdict(check) for check in fit.run.cloud_checks],
    }
    if fit.likelihood is not None:
        words["likelihood_type"] = type(fit.likelihood).__name__
        _put(words, arrays, "likelihood", vars(fit.likelihood))
    if fit.draws is not None:
        _put(words, arrays, "draws", fit.draws._asdict())
    for name in _TREES:
        for i, leaf in enumerate(jax.tree.leaves(getattr(fit.run, name))):
            arrays[f"run.{name}.{i}"] = np.asarray(leaf)
    arrays["words"] = np.array(json.dumps(words))

    def write(partial: Path) -> None:
        with partial.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    write_atomically(Path(path), write)


def read_fit(path: str | Path, problem: Problem) -> dict[str, Any]:
    """The fields of a saved fit of this problem."""
    arrays, words = _parts(path)
    if words["format"] != FORMAT:
        raise ValueError(
            f"{path} has format {words['format']}, but this version of marginax reads {FORMAT}."
        )
    given = fingerprint(problem)
    try:
        made = {name: words["problem"][name] for name in given}
    except (KeyError, TypeError) as error:
        raise _damaged(path, error) from None
    _check_same(path, made, given)
    try:
        fields = _fields(arrays, words, problem)
        _check_shapes(fields, problem)
        return fields
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path, error) from None


def _parts(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the words of a file that may be anything."""
    try:
        with Path(path).open("rb") as opened:
            file = np.load(opened, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array without a name")
            arrays = {name: file[name] for name in file.files}
        words = json.loads(str(arrays.pop("words")))
        if not isinstance(words, dict) or not {"format", "problem"} <= words.keys():
            raise ValueError("its words are those of something else")
    except (OSError, MemoryError):
        raise
    except Exception as error:  # an archive can be damaged in a dozen ways
        raise _damaged(path, error) from None
    return arrays, words


def _damaged(path: str | Path, error: Exception) -> ValueError:
    return ValueError(f"{path} is not a saved fit, or it is damaged ({error}).")


def _fields(
    arrays: dict[str, np.ndarray], words: dict[str, Any], problem: Problem
) -> dict[str, Any]:
    said, run_words = (
        {name: _of_kind(name, part[name], kind) for name, kind in kinds.items()}
        for part, kinds in ((words, _OF_FIT), (words["run"], _OF_RUN))
    )
    cloud_checks = tuple(
        CloudCheck(**(check | {"warnings": tuple(check["warnings"])}))
        for check in words["cloud_checks"]
    )
    trees = {name: _tree(arrays, f"run.{name}", _like(problem, name)) for name in _TREES}
    return {
        "problem": problem,
        "unconstrained_theta": arrays["unconstrained_theta"],
        "information": arrays.get("information"),
        "score_covariance": arrays.get("score_covariance"),
        "likelihood": _likelihood(words, arrays),
        "draws": _get(words, arrays, "draws", Posterior),
        "run": Run(**trees, state=None, cloud_checks=cloud_checks, **run_words),
        **said,
    }


def _of_kind(name: str, value: Any, kind: Any) -> Any:
    """A value of the file if it is what it must be; lists as tuples."""
    if get_origin(kind) is list:
        if isinstance(value, list) and all(isinstance(one, get_args(kind)) for one in value):
            return tuple(value)
    elif isinstance(value, kind | int if float in (kind, *get_args(kind)) else kind):
        return value  # a float may have been written as an integer
    raise ValueError(f"{name} is {value!r}")


def _check_shapes(fields: dict[str, Any], problem: Problem) -> None:
    """Refuses arrays that are not those of this problem, and a theta that is none."""
    for name, array, shape in _arrays(fields, problem):
        found = np.shape(array)
        fits = len(found) == len(shape) and all(
            wanted in (None, length) for wanted, length in zip(shape, found, strict=True)
        )
        if not fits or array.dtype.kind != "f":
            wanted = ", ".join("any" if length is None else str(length) for length in shape)
            raise ValueError(
                f"{name} has shape {found} and dtype {array.dtype}, but for this problem it has "
                f"real numbers of shape ({wanted})"
            )
    theta, run = fields["unconstrained_theta"], fields["run"]
    if not np.all(np.isfinite(theta)):
        raise ValueError(
            f"its estimate has {np.sum(~np.isfinite(theta))} values that are not finite"
        )
    if not 0 <= fields["start"] < len(run.statuses):
        raise ValueError(f"its start is {fields['start']}, of {len(run.statuses)}")
    if not set(fields["boundaries"]) <= set(range(len(theta))):
        raise ValueError(f"its boundaries are {fields['boundaries']}, of {len(theta)} parameters")


def _arrays(fields: dict[str, Any], problem: Problem) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Every array of a fit that there is: its name, itself, and its shape, None for any length."""
    size, run = problem.num_parameters, fields["run"]
    square, starts = (size, size), len(run.statuses)
    blocks = (problem.num_groups or 1, problem.latent_size)
    yield "unconstrained_theta", fields["unconstrained_theta"], (size,)
    for name, like, axes in (
        ("theta", problem.start_theta(), (starts,)),
        ("particles", problem.start_latent(), (starts, None)),
        ("history", problem.start_theta(), (starts, None)),
    ):
        leaves = zip(jax.tree.leaves(getattr(run, name)), jax.tree.leaves(like), strict=True)
        yield from ((f"run.{name}", leaf, (*axes, *start.shape)) for leaf, start in leaves)
    wanted = {
        **{"information": square, "score_covariance": square, "draws": (None, None, *blocks)},
        **{"by_group": blocks[:1], "mean": blocks, "sd": blocks},
    }
    parts = [fields, *(vars(part) for part in (fields["likelihood"],) if part is not None)]
    parts += [part._asdict() for part in (fields["draws"],) if part is not None]
    for part in parts:
        for name in wanted.keys() & part.keys():
            if isinstance(part[name], np.ndarray):
                yield name, part[name], wanted[name]


def fingerprint(problem: Problem) -> dict[str, Any]:
    """What tells two problems apart; precision on its own, and what traced the log joint."""
    data = [np.asarray(leaf) for leaf in jax.tree.leaves(problem.data)]
    rounded = [leaf.astype(SINGLE.get(leaf.dtype.kind, leaf.dtype)) for leaf in data]
    parts = (problem.start_theta(), problem.start_latent(), problem.data)
    dtypes = sorted({str(leaf.dtype) for leaf in jax.tree.leaves(parts)})
    return {
        "names": list(parameter_names(problem)),
        "latents": [list(leaf.shape) for leaf in jax.tree.leaves(problem.start_latent())],
        "transforms": _transforms(problem),
        "data": digest(rounded),
        "dtypes": [str(leaf.dtype) for leaf in data],
        "exact data": digest(data),
        "log joint": program_digest(problem.unconstrained_log_joint, parts),
        "traced by": f"jax {jax.__version__} in {', '.join(dtypes)}",
    }


def _transforms(problem: Problem) -> list[str]:
    """Every transform in words, with the ends of what it allows: a name rounds them."""
    trees = (problem.theta_transforms, problem.latent_transforms)
    return [f"{one.name} {one.limits}" for one in jax.tree.leaves(trees, is_leaf=is_transform)]


_DIFFERENCES = {
    "names": "it has other parameters",
    "latents": "its latents have other shapes",
    "transforms": "it has other transforms",
    "data": "it has other data",
    "exact data": "it has other data",
    "log joint": "its log joint computes something else, or has other constants",
}


def _check_same(path: str | Path, made: dict[str, Any], given: dict[str, Any]) -> None:
    """Refuses a problem that is another one, or the same in another precision."""
    alike = all(made[part] == given[part] for part in ("names", "latents", "data"))
    if alike and made["dtypes"] != given["dtypes"]:
        double = "float64" in made["dtypes"] and "float64" not in given["dtypes"]
        raise ValueError(
            f"{path} is a fit of this problem in another precision. "
            + (
                "It was made in float64; call jax.config.update('jax_enable_x64', True) before "
                "making the problem."
                if double
                else f"Its data were {', '.join(made['dtypes'])}, and those given are "
                f"{', '.join(given['dtypes'])}: make the problem as it was made."
            )
        )
    other = [part for part in _DIFFERENCES if made[part] != given[part]]
    if other == ["log joint"] and made["traced by"] != given["traced by"]:
        warnings.warn(
            f"{path} was made with {made['traced by']}, and here is {given['traced by']}: whether "
            "the log joint is the same cannot be told. See to it that it is.",
            stacklevel=4,
        )
    elif other:
        raise ValueError(
            f"{path} is a fit of another problem than the one given: {_DIFFERENCES[other[0]]}. "
            "Bring the problem it was made with."
        )


def _likelihood(words: dict[str, Any], arrays: dict[str, np.ndarray]) -> Likelihood | None:
    if "likelihood_type" not in words:
        return None
    by_name = {kind.__name__: kind for kind in get_args(Likelihood)}
    kind = by_name[words["likelihood_type"]]
    return _get(words, arrays, "likelihood", kind)


def _put(
    words: dict[str, Any], arrays: dict[str, np.ndarray], name: str, fields: dict[str, Any]
) -> None:
    words[name] = {}
    for field, value in fields.items():
        if isinstance(value, np.ndarray):
            arrays[f"{name}.{field}"] = value
        else:
            words[name][field] = value


def _get(words: dict[str, Any], arrays: dict[str, np.ndarray], name: str, kind: Any) -> Any:
    if name not in words:
        return None
    inside = {key.split(".")[1]: arrays[key] for key in arrays if key.startswith(f"{name}.")}
    kinds = get_type_hints(kind)
    return kind(
        **{key: _of_kind(key, one, kinds[key]) for key, one in (words[name] | inside).items()}
    )


def _like(problem: Problem, name: str) -> Any:
    return problem.start_latent() if name == "particles" else problem.start_theta()


def _tree(arrays: dict[str, np.ndarray], name: str, like: Any) -> Any:
    structure = jax.tree.structure(like)
    count = len(jax.tree.leaves(like))
    leaves = [jnp.asarray(arrays[f"{name}.{i}"]) for i in range(count)]
    return jax.tree.unflatten(structure, leaves)
