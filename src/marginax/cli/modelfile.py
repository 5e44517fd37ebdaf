"""Model files: which function is meant, what it wants, and the problem it makes of a table."""

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np

from marginax.cli.datafile import Columns, NoColumn, listed, nearest
from marginax.cli.messages import one_line
from marginax.fitting.result import Fit
from marginax.model.problem import Problem
from marginax.typing import Key

__all__ = ["Model", "load_model", "predictions", "problem_of", "read_settings"]

DRAWS = 400  # of simulated data, for a figure


class Model(NamedTuple):
    """A function of a model file.

    Attributes:
        path: the file.
        name: of the function.
        function: itself.
        title: how results are called: by the name if one was asked for, otherwise by the file.
        predict: the file's function of that name, if there is one; see `predictions`.
        along: the file's `predict_along`, a column to draw predictions against, if there is one.
    """

    path: Path
    name: str
    function: Callable[..., Any]
    title: str
    predict: Callable[..., Any] | None = None
    along: str | None = None


def load_model(where: str) -> Model:
    """The function that FILE.py or FILE.py:name means."""
    path, name = _split(where)
    if path.suffix != ".py":
        raise ValueError(
            f"{path} is not a model: give a Python file, or FILE.py:name. `marginax new lmm` "
            "writes one to start from."
        )
    module = _imported(path)
    functions = _functions(module)
    more = (functions.get("predict"), getattr(module, "predict_along", None))
    if name:
        if name not in functions:
            there = f"it defines {', '.join(functions)}" if functions else "it defines no function"
            raise ValueError(f"{path} has no function {name!r}; {there}.{nearest(name, functions)}")
        return Model(path, name, functions[name], name, *more)
    if not functions:
        raise ValueError(
            f"{path} defines no function. Write `problem(data)`, which returns a marginax.Problem, "
            "or a NumPyro model."
        )
    usual = [key for key in ("problem", "model") if key in functions]
    if not usual and len(functions) > 1:
        raise ValueError(
            f"{path} defines {', '.join(functions)}, and none is called problem or model. Say "
            f"which one is the model: {path}:{next(iter(functions))}, for instance."
        )
    chosen = [*usual, *functions][0]
    return Model(path, chosen, functions[chosen], path.stem, *more)


def _functions(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """The public functions that a file defines, and not those that it imports."""
    return {
        key: value
        for key, value in vars(module).items()
        if callable(value)
        and not (key.startswith("_") or inspect.isclass(value))
        and getattr(value, "__module__", None) == module.__name__
    }


def read_settings(pairs: list[str]) -> dict[str, Any]:
    """`key=value` words as keyword arguments: int, float, true or false, otherwise text."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise ValueError(f"--set {pair}: write --set key=value, with a Python name as the key.")
        settings[key] = _value(text)
    return settings


def problem_of(
    model: Model, table: Columns, settings: Mapping[str, Any]
) -> tuple[Problem, list[str]]:
    """The problem that a model makes of a table, and what should be said about the data."""
    parameters = _parameters(model, settings)
    wanted = [p.name for p in parameters if p.default is p.empty and p.name not in settings]
    if model.name == "problem" or wanted == ["data"]:
        if len(wanted) > 1:
            raise ValueError(
                f"{model.name}() in {model.path} needs {', '.join(wanted[1:])} too. Give it with "
                f"--set {wanted[1]}=..., or a default in the file."
            )
        return _called(model, lambda: model.function(table, **settings)), []
    arguments: dict[str, Any] = {}
    notes = []
    for parameter in parameters:
        name = parameter.name
        if name in settings:
            arguments[name] = settings[name]
        elif name in table:
            arguments[name], said = _coded(name, table[name])
            notes += said
        elif parameter.default is parameter.empty:
            raise ValueError(
                f"{model.name}() in {model.path} needs a column {name!r}, but the data have "
                f"{listed(table)}.{nearest(name, table)}"
            )
    from marginax.interop.numpyro import from_numpyro

    return _called(model, lambda: from_numpyro(model.function, **arguments)), notes


def predictions(model: Model, fit: Fit) -> tuple[str, Any] | None:
    """Simulated data of every posterior draw, and the column they are of; None without `predict`.

    `predict(key, theta, x, group)` is of ONE group, as the log density is, or of all the data where
    there are no groups, and returns {column: new values}.
    """
    if model.predict is None or fit.draws is None:
        return None
    problem, predict = fit.problem, model.predict

    def of_all(key: Key, theta: Any, x: Any) -> Any:
        if problem.group_log_joint is None or problem.num_groups is None:
            return predict(key, theta, x, problem.data)
        keys = jax.random.split(key, problem.num_groups)
        return jax.vmap(predict, (0, None, 0, 0))(keys, theta, x, problem.data)

    made = fit.predict(of_all, key=jax.random.key(0), num_draws=DRAWS)
    if not isinstance(made, dict) or len(made) != 1:
        raise ValueError("it must return a dict with one entry, {column: new values}")
    return next(iter(made.items()))


def _split(where: str) -> tuple[Path, str]:
    front, colon, name = where.rpartition(":")
    if colon and front.endswith(".py"):  # a colon may also come after the letter of a drive
        return Path(front), name
    return Path(where), ""


def _imported(path: Path) -> ModuleType:
    if not path.is_file():
        raise ValueError(
            f"There is no file {path}. `marginax new lmm` writes a model to start from."
        )
    name = f"marginax_model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file: give one that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses and pickles look for it
    sys.path.insert(0, str(path.resolve().parent))  # it may import what lies beside it
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{path} cannot be imported: {_where(error, path)}.") from error
    finally:
        sys.path.pop(0)
    return module


def _called(model: Model, make: Callable[[], Any]) -> Problem:
    """What the function makes, with an error of its own in words."""
    try:
        made = make()
    except NoColumn as error:
        raise ValueError(f"{model.name}() in {model.path}: {error}") from error
    except ImportError:
        raise
    except Exception as error:
        raise ValueError(
            f"{model.name}() in {model.path} failed: {_where(error, model.path)} (--debug shows "
            "all of it.)"
        ) from error
    if not isinstance(made, Problem):
        forgotten = " Is a `return` missing?" if made is None else ""
        raise ValueError(
            f"{model.name}() in {model.path} returned {type(made).__name__}, but a function of "
            f"`data` must return a marginax.Problem.{forgotten}"
        )
    return made


def _where(error: BaseException, path: Path) -> str:
    """Type, line in the file and message of an error in a model file."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__} in line {error.lineno}: {error.msg}"
    here, lines = path.resolve(), []
    cause: BaseException | None = error
    while cause is not None:  # down to the first error, whose line is the one to correct
        frames = traceback.extract_tb(cause.__traceback__)
        lines += [frame.lineno for frame in frames if Path(frame.filename).resolve() == here]
        cause = cause.__cause__
    place = f" in line {lines[-1]}" if lines else ""
    return f"{type(error).__name__}{place}: {one_line(error)}"


def _parameters(model: Model, settings: Mapping[str, Any]) -> list[inspect.Parameter]:
    """The named parameters; refuses settings that it does not have."""
    every = list(inspect.signature(model.function).parameters.values())
    named = [p for p in every if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    names = [p.name for p in named]
    for key in settings:
        if key not in names and not any(p.kind is p.VAR_KEYWORD for p in every):
            raise ValueError(
                f"--set {key}: {model.name}() in {model.path} has no argument {key!r}, only "
                f"{', '.join(names)}.{nearest(key, names)}"
            )
    return named


def _coded(name: str, values: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Text as numbers, which is all that a NumPyro model can use."""
    if values.dtype.kind != "U":
        return values, []
    labels, codes = np.unique(values, return_inverse=True)
    some = ", ".join(f"{label} is {code}" for code, label in enumerate(labels[:3]))
    more = ", ..." if len(labels) > 3 else ""
    said = f"Column {name!r} is text: its {len(labels)} values became numbers ({some}{more})."
    return codes.reshape(values.shape), [said]


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
