"""The committed ratios of timings and what counts as worse: no timing happens here."""

import json
from collections.abc import Mapping
from pathlib import Path

__all__ = ["ALLOWED", "FILE", "complaints", "read", "write"]

FILE = Path(__file__).parent / "baseline.json"
ALLOWED = 1.3  # times the baseline


def read(file: Path = FILE) -> dict[str, float]:
    """The baseline, or nothing where there is none yet."""
    return json.loads(file.read_text()) if file.exists() else {}


def write(ratios: Mapping[str, float], file: Path = FILE) -> None:
    """Makes these the baseline."""
    rounded = {name: float(f"{value:.4g}") for name, value in ratios.items()}
    file.write_text(json.dumps(rounded, indent=1) + "\n")


def complaints(
    now: Mapping[str, float], before: Mapping[str, float], allowed: float = ALLOWED
) -> dict[str, str]:
    """A sentence, by name, for every ratio that has grown too much or is on one side only.

    Args:
        now: the ratios of this run.
        before: the baseline.
        allowed: how many times the baseline a ratio may be.
    """
    found = {}
    for name in sorted({*now, *before}):
        if name not in before:
            found[name] = f"{name}: {now[name]:.3g} now, but it is not in the baseline. Write it."
        elif name not in now:
            found[name] = f"{name}: {before[name]:.3g} in the baseline, but no longer measured."
        elif not now[name] <= allowed * before[name]:  # NaN is worse, too
            times = now[name] / before[name]
            found[name] = (
                f"{name}: {before[name]:.3g} in the baseline, {now[name]:.3g} now, "
                f"{times:.2f} times as much (allowed: {allowed:g})."
            )
    return found
