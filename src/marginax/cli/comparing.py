"""What `marginax compare` says of two folders of results: AIC, BIC and a likelihood-ratio test."""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["comparison_of"]


class _Summary(NamedTuple):
    """What is needed of a summary.json."""

    name: str
    parameters: tuple[str, ...]
    log_likelihood: float
    error: float
    aic: float
    bic: float | None
    rows: int | None
    reml: bool
    data: str
    is_ok: bool


def comparison_of(first: Path, second: Path) -> str:
    """The table, and the test where one model may lie inside the other.

    Args:
        first: a folder that `marginax fit` or `marginax mixed --out` wrote, or its summary.json.
        second: likewise.
    """
    fits = sorted((_read(first), _read(second)), key=lambda one: len(one.parameters))
    width = max(len(one.name) for one in fits)
    lines = [f"{'':{width}}  parameters      logLik         AIC         BIC"]
    for one in fits:
        bic = "-" if one.bic is None else f"{one.bic:.2f}"
        lines.append(
            f"{one.name:{width}}  {len(one.parameters):10d}  {one.log_likelihood:10.3f}  "
            f"{one.aic:10.2f}  {bic:>10s}"
        )
    lines += _test(*fits)
    lines += [f"Note: {one.name} has warnings." for one in fits if not one.is_ok]
    return "\n".join(lines)


def _read(path: Path) -> _Summary:
    file = path if path.suffix == ".json" else path / "summary.json"
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ValueError(
            f"{file} cannot be read: {reason}. Give two folders that `marginax fit` or `marginax "
            "mixed --out` wrote."
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise ValueError(f"{file} is no summary of a fit: it is not JSON.") from None
    try:
        return _parts_of(told, str(path), file)
    except (AttributeError, KeyError, TypeError):
        raise ValueError(
            f"{file} is no summary of a fit: it is other JSON. Give two folders that `marginax "
            "fit` or `marginax mixed --out` wrote."
        ) from None


def _parts_of(told: Any, name: str, file: Path) -> _Summary:
    parts = ("parameters", "fixed_effects", "variance_components")
    rows = [row for part in parts for row in told.get(part, [])]
    if told.get("log_likelihood") is None or not rows:
        raise ValueError(f"{file} has no log likelihood: there is nothing to compare.")
    bic = told.get("bic")
    return _Summary(
        name=name,
        parameters=tuple(str(row["name"]) for row in rows),
        log_likelihood=float(told["log_likelihood"]),
        error=float(told.get("log_likelihood_error") or 0.0),
        aic=float(told["aic"]),
        bic=None if bic is None else float(bic),
        rows=told.get("num_observations", told.get("sample_size")),
        reml=bool(told.get("reml", False)),
        data=Path(str(told.get("data", ""))).name,
        is_ok=bool(told.get("ok", True)),
    )


def _test(smaller: _Summary, larger: _Summary) -> list[str]:
    if smaller.rows != larger.rows or smaller.data != larger.data:
        return [
            f"The fits are of different data ({smaller.data}, {smaller.rows} rows; {larger.data}, "
            f"{larger.rows} rows): their likelihoods cannot be compared."
        ]
    if smaller.reml or larger.reml:
        return ["A fit is by REML: compare fits by maximum likelihood."]
    degrees = len(larger.parameters) - len(smaller.parameters)
    if degrees == 0:
        return ["As many parameters: compare them by AIC."]
    missing = sorted(set(smaller.parameters) - set(larger.parameters))
    if missing:
        return [f"No test: the larger model lacks {', '.join(missing)}. Compare them by AIC."]
    statistic = max(2 * (larger.log_likelihood - smaller.log_likelihood), 0.0)
    lines = [_said(statistic, degrees)]
    extra = set(larger.parameters) - set(smaller.parameters)
    if any(name.startswith(("sd", "corr", "zero_probability")) for name in extra):
        lines.append(
            "Note: if the smaller model sets a variance to 0, this p-value is too large, up to "
            "twice for one variance."
        )
    if larger.error + smaller.error > 0.05:
        lines.append(f"Note: the likelihoods have errors, {larger.error + smaller.error:.2g}.")
    return lines


def _said(statistic: float, degrees: int) -> str:
    from scipy.special import chdtrc  # slow to import

    p: Any = float(chdtrc(degrees, statistic))
    told = "below 1e-15" if p < 1e-15 or math.isnan(p) else f"{p:.3g}"
    return f"Likelihood-ratio test: chi-square {statistic:.3f} on {degrees} degrees, p {told}."
