"""A fit as one .npz file and back: arrays and plain JSON, nothing that could run code.

The problem is code and data of yours and is not in the file; whoever reads it brings the problem,
and a checksum of its data tells whether it is the same.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from marginax._core.files import write_atomically
from marginax._core.fingerprints import digest
from marginax.diagnostics.cloud import CloudCheck
from marginax.likelihood.posterior import Posterior
from marginax.likelihood.results import Likelihood
from marginax.model.parameter_table import parameter_names
from marginax.model.problem import Problem
from marginax.running.result import Run

__all__ = ["read_fit", "write_fit"]

FORMAT = 3
SINGLE = {"f": np.float32, "i": np.int32, "u": np.uint32}  # as JAX has them without float64
_TREES = ("theta", "particles", "history")  # of the run; all but the particles are like theta


def write_fit(fit: Any, path: str | Path) -> None:
    """Writes a fit; an existing file is replaced only when the new one is complete."""
    arrays: dict[str, np.ndarray] = {"unconstrained_theta": fit.unconstrained_theta}
    for name in ("information", "score_covariance"):
        if getattr(fit, name) is not None:
            arrays[name] = getattr(fit, name)
    words: dict[str, Any] = {
        "format": FORMAT,
        "problem": fingerprint(fit.problem),
        **{
            name: getattr(fit, name)
            for name in (
                *("start", "num_starts", "num_agreeing", "boundaries"),
                *("method", "converged", "warnings", "notes"),
            )
        },
        "timings": fit.timings,
        "run": {
            name: getattr(fit.run, name)
            for name in (
                *("status", "reason", "num_steps", "timings"),
                *("statuses", "reasons", "steps_per_start", "starts_agree"),
            )
        },
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
        return _fields(arrays, words, problem)
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
    run_words: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in words["run"].items()
    }
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
        "start": words["start"],
        "num_starts": words["num_starts"],
        "num_agreeing": words["num_agreeing"],
        "boundaries": tuple(words["boundaries"]),
        "method": words["method"],
        "converged": words["converged"],
        "warnings": tuple(words["warnings"]),
        "notes": tuple(words["notes"]),
        "timings": words["timings"],
    }


def fingerprint(problem: Problem) -> dict[str, Any]:
    """What tells two problems apart without comparing code; precision on its own."""
    data = [np.asarray(leaf) for leaf in jax.tree.leaves(problem.data)]
    rounded = [leaf.astype(SINGLE.get(leaf.dtype.kind, leaf.dtype)) for leaf in data]
    return {
        "names": list(parameter_names(problem)),
        "latents": [list(leaf.shape) for leaf in jax.tree.leaves(problem.start_latent())],
        "data": digest(rounded),
        "dtypes": [str(leaf.dtype) for leaf in data],
        "exact data": digest(data),
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
    if made != given:
        raise ValueError(
            f"{path} is a fit of another problem: names, shapes or data differ from the one given. "
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
    return kind(**words[name], **inside)


def _like(problem: Problem, name: str) -> Any:
    return problem.start_latent() if name == "particles" else problem.start_theta()


def _tree(arrays: dict[str, np.ndarray], name: str, like: Any) -> Any:
    structure = jax.tree.structure(like)
    count = len(jax.tree.leaves(like))
    leaves = [jnp.asarray(arrays[f"{name}.{i}"]) for i in range(count)]
    return jax.tree.unflatten(structure, leaves)
