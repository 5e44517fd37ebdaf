"""Every table of the docs made again, one after the other: `python -m benchmarks.every_table`.

    python -m benchmarks.every_table --ages            # which are older than the code; runs nothing
    python -m benchmarks.every_table fields start_up   # some of them

Each is made in a process of its own. `results/made.json` is told of every one that ended well:
when, in how many seconds, and the checksum of the code that made it. Comments and docstrings are no
part of that; nor, for a table of runs alone, are likelihoods and fits, of which nothing below them
knows, because imports go one way. What a script only prints is kept in `results/NAME.txt`. On two
cores all take some hours, and those that time something want a quiet machine.
"""

import argparse
import ast
import datetime
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.tables import RESULTS

__all__ = ["TABLES", "Table", "code_checksum"]

ROOT = Path(__file__).parents[1]
MADE = RESULTS / "made.json"
# Above `running/` in the order of `docs/design.md`, and used by no table of runs alone.
OF_FITS = ("likelihood", "interop", "fitting", "reproduction", "formulas", "cli")


class Table(NamedTuple):
    """How a table is made.

    Attributes:
        commands: after `python`, each in a process of its own.
        files: of `results` that it writes, or a text of what it prints.
        needs: what is not on every machine, in words.
        fits: whether it computes likelihoods or fits, and not runs alone.
    """

    commands: tuple[str, ...]
    files: tuple[str, ...]
    needs: str = ""
    fits: bool = True


def _script(name: str, *files: str, options: str = "", needs: str = "", fits: bool = True) -> Table:
    command = f"-m benchmarks.{name} {options}".strip()
    return Table((command,), files or (f"{name}.md",), needs, fits)


# Those that time something first, while the machine is still quiet.
TABLES = {
    "bench": Table(("-m benchmarks --full",), ("bench.json",)),
    "start_up": _script("start_up", needs="R with lme4, and statsmodels"),
    "step_costs": _script("step_costs", fits=False),
    "mixed_models": _script("mixed_models", needs="R with lme4, and statsmodels"),
    "fit_beside_svi": _script("fit_beside_svi"),
    "many_latents": _script("many_latents", "many_latents.md", "long_chains.md"),
    "many_groups": Table(
        (
            "-m benchmarks.many_groups --groups 10000",
            "-m benchmarks.many_groups --groups 49000",
            "-m benchmarks.many_groups --groups 51000",
            "-m benchmarks.many_groups --groups 1000000 --num-starts 3",
        ),
        ("many_groups.txt",),
    ),
    "velocity": _script("velocity", "velocity.txt", fits=False),
    "random_batches": Table(
        ("-m benchmarks.random_batches", "-m benchmarks.random_batches --noise"),
        ("random_batches.md", "random_batches_noise.md"),
        fits=False,
    ),
    "fields": _script("fields", fits=False),
    "velocity_ceiling": Table(
        (
            "-m benchmarks.velocity_ceiling",
            "-m benchmarks.velocity_ceiling --particles 100000 --dimension 50",
        ),
        ("velocity_ceiling.txt",),
        "an NVIDIA GPU",
        fits=False,
    ),
    "many_groups_on_a_gpu": Table(
        (
            "-m benchmarks.many_groups --no-draw-posterior --groups 1000",
            "-m benchmarks.many_groups --no-draw-posterior --groups 10000",
            "-m benchmarks.many_groups --no-draw-posterior --groups 1000000 --num-starts 3",
        ),
        ("many_groups_on_a_gpu.txt",),
        "an NVIDIA GPU",
    ),
    "many_latents_on_a_gpu": Table(
        (
            "-m benchmarks.many_latents --one crossed 0",
            "-m benchmarks.many_latents --one crossed 0",  # with compiled programs kept
            "-m benchmarks.many_latents --one volatility 0",
            "-m benchmarks.many_latents --one binary 0",
            "-m benchmarks.many_latents --one field 0",
        ),
        ("many_latents_on_a_gpu.txt",),
        "an NVIDIA GPU",
    ),
    "kernel_accuracy": _script("kernel_accuracy", fits=False),
    "non_gaussian": _script("non_gaussian", "non_gaussian.txt"),
    "constrained_latents": _script("constrained_latents"),
    "communication": _script("communication"),
    "mixed_families": _script("mixed_families"),
    "stopping_rules": Table(
        (
            "-m benchmarks.stopping_rules --only toy",
            "-m benchmarks.stopping_rules --only random_intercept",
            "-m benchmarks.stopping_rules --only logistic",
        ),
        ("stopping_rules.txt",),
        "an NVIDIA GPU: five minutes, without one over two hours",
        fits=False,
    ),
    "coverage": _script("coverage", options="--processes 2"),
    "mixed_coverage": _script("mixed_coverage"),
}


def code_checksum(fits: bool = True) -> str:
    """Of all that the package computes, or of runs alone: its syntax without docstrings."""
    told, package = hashlib.sha256(), ROOT / "src" / "marginax"
    for path in sorted(package.rglob("*.py")):
        if not fits and path.relative_to(package).parts[0] in OF_FITS:
            continue
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            first = body[0] if isinstance(body, list) and body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                first.value.value = None
        told.update(f"{path.relative_to(ROOT)} {ast.dump(tree)}".encode())
    return told.hexdigest()[:16]


def make(name: str) -> bool:
    """Makes a table, and notes it; whether that went well."""
    began, code = time.time(), code_checksum(TABLES[name].fits)
    said = ""
    for command in TABLES[name].commands:
        print(f"{name}: python {command}", flush=True)
        words = [sys.executable, *command.split()]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"  failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}", flush=True)
            return False
        said += f"python {command}\n\n{done.stdout}\n"
    for file in TABLES[name].files:
        if file.endswith(".txt"):
            (RESULTS / file).write_text(said)
        elif not (RESULTS / file).exists() or (RESULTS / file).stat().st_mtime < began:
            print(f"  failed: none of its commands wrote {file}", flush=True)
            return False
    seconds = round(time.time() - began)
    made = json.loads(MADE.read_text()) if MADE.exists() else {}
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    made[name] = {"day": day, "seconds": seconds, "code": code}
    MADE.write_text(json.dumps(dict(sorted(made.items())), indent=1) + "\n")
    print(f"  {seconds} s", flush=True)
    return True


def ages() -> int:
    """Prints when each table was made, and how many are older than the code."""
    made = json.loads(MADE.read_text()) if MADE.exists() else {}
    codes, older = {fits: code_checksum(fits) for fits in (True, False)}, 0
    for name, table in TABLES.items():
        known = made.get(name)
        is_older = known is None or known["code"] != codes[table.fits]
        older += is_older
        said = "never noted" if known is None else f"{known['day']}, {known['seconds']} s"
        print(f"{name:20} {said:20} {'older than the code' if is_older else ''} {table.needs}")
    print(f"{older} of {len(TABLES)} are older than the code {codes[True]}.")
    return older


def main(names: list[str], only_ages: bool) -> int:
    """All tables or some; 0 if all went well, or if none is older."""
    if only_ages:
        return min(1, ages())
    return 0 if all([make(name) for name in names or TABLES]) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(TABLES)}")
    parser.add_argument("--ages", action="store_true", help="say which are older than the code")
    given = parser.parse_args()
    if unknown := set(given.names) - set(TABLES):
        parser.error(f"there is no table {', '.join(sorted(unknown))}")
    sys.exit(main(given.names, given.ages))
