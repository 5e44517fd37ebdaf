"""`marginax new`: a commented model file to start from, and simulated data that it fits."""

import csv
import difflib
import io
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from marginax.cli.writing import write_whole

__all__ = ["KINDS", "start"]

Table = Mapping[str, Any]


def start(kind: str, out: Path | None) -> tuple[Path, Path]:
    """Writes the model and its data, and returns their paths.

    Args:
        kind: one of `KINDS`.
        out: the model's file; `kind`.py in this folder if left out.
    """
    if kind not in KINDS:
        near = difflib.get_close_matches(kind.lower(), KINDS, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"There is no starter {kind!r}; there are {', '.join(KINDS)}.{hint}")
    model = Path(f"{kind}.py") if out is None else out
    if model.suffix != ".py":
        raise ValueError(f"--out is {model}, but a model is a Python file: {model}.py, perhaps.")
    data = model.with_suffix(".csv")
    for path in (model, data):
        if path.exists():
            raise ValueError(
                f"{path} is there already and is not overwritten. Choose another name with --out."
            )
    template = files("marginax.cli").joinpath("templates", f"{kind}.py.txt")
    write_whole(data, lambda partial: partial.write_text(_as_csv(KINDS[kind]()), encoding="utf-8"))
    text = template.read_text(encoding="utf-8")
    write_whole(model, lambda partial: partial.write_text(text, encoding="utf-8"))
    return model, data


def _as_csv(table: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return text.getvalue()


def _lmm() -> Table:
    random = np.random.default_rng(1)
    sd, correlation = np.array([1.5, 0.4]), 0.3
    covariance = np.outer(sd, sd) * np.array([[1.0, correlation], [correlation, 1.0]])
    sizes = random.integers(5, 9, 40)
    subject = np.repeat(np.arange(1, 41), sizes)
    time = np.concatenate([np.arange(size) for size in sizes])
    effects = random.multivariate_normal([10.0, 0.5], covariance, 40)[subject - 1]
    y = effects[:, 0] + effects[:, 1] * time + random.normal(size=len(time))
    return {"subject": subject, "time": time, "y": y.round(3)}


def _glmm() -> Table:
    random = np.random.default_rng(2)
    clinic, treated = np.repeat(np.arange(1, 31), 2), np.tile([0, 1], 30)
    patients = random.integers(15, 40, 60)
    log_odds = -1.0 - 0.7 * treated + random.normal(0.0, 0.8, 30)[clinic - 1]
    events = random.binomial(patients, 1 / (1 + np.exp(-log_odds)))
    return {"clinic": clinic, "treated": treated, "patients": patients, "events": events}


def _irt() -> Table:
    random = np.random.default_rng(3)
    person, item = np.repeat(np.arange(1, 401), 5), np.tile(np.arange(5), 400)
    slope, difficulty = np.array([0.8, 1.0, 1.2, 1.5, 1.8]), np.linspace(-1, 1, 5)
    ability = random.normal(size=400)[person - 1]
    chance = 1 / (1 + np.exp(-slope[item] * (ability - difficulty[item])))
    return {"person": person, "item": item + 1, "correct": random.binomial(1, chance)}


def _pk() -> Table:
    random = np.random.default_rng(4)
    hours = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 12.0, 24.0])
    patient, time = np.repeat(np.arange(1, 31), 7), np.tile(hours, 30)
    dose = np.repeat(random.choice([100, 200], 30), 7)
    clearance = 3.0 * np.exp(random.normal(0.0, 0.3, 30))[patient - 1]
    volume = 30.0 * np.exp(random.normal(0.0, 0.2, 30))[patient - 1]
    ka, ke = 1.2, clearance / volume
    curve = dose * ka / (volume * (ka - ke)) * (np.exp(-ke * time) - np.exp(-ka * time))
    measured = curve * np.exp(random.normal(0.0, 0.15, len(time)))
    return {"patient": patient, "dose": dose, "time": time, "concentration": measured.round(4)}


def _factor() -> Table:
    random = np.random.default_rng(5)
    person, test = np.repeat(np.arange(1, 151), 4), np.tile(np.arange(4), 150)
    loading = np.array([1.5, 1.2, 0.9, 0.6])
    common = random.normal(size=150)[person - 1]
    score = test + loading[test] * common + 0.8 * random.normal(size=len(test))
    return {"person": person, "test": [f"t{i + 1}" for i in test], "score": score.round(3)}


KINDS: dict[str, Callable[[], Table]] = {
    "lmm": _lmm,
    "glmm": _glmm,
    "irt": _irt,
    "pk": _pk,
    "factor": _factor,
}
