"""Mutants: one small bug at a time in a copy of the package, and whether a test sees it.

    python tests/support/mutants.py --module momentum --sample 5 --seed 0 --jobs 1

Not a test, and not collected. A mutant that is killed takes some ten seconds, one that survives all
the minutes of its tests. Survivors are either equivalent to what they replaced or something
that no test looks at. A mutant that never ends is counted apart.
"""

import argparse
import ast
import collections
import concurrent.futures
import copy
import difflib
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "marginax"
STEIN, LANGEVIN = "algorithms/test_stein_methods", "algorithms/test_langevin_methods"
RESCALE, CONTRACT = "algorithms/test_rescale", "algorithms/test_contract"
CLOSED_FORMS, BATCHES = "algorithms/test_closed_forms", "running/test_group_batches"
# The tests of a module, those that fail fastest first; the key is a part of the module's path.
TESTS = {
    "kernels/": ["kernels/test_parts", "kernels/test_kernel_algebra", "kernels/test_velocities"],
    "flows/stein": ["flows/test_metrics", "flows/test_chunks", STEIN, RESCALE, CONTRACT],
    "flows/metrics": ["flows/test_metrics", "flows/test_chunks", STEIN],
    "flows/momentum": ["flows/test_momentum", STEIN, BATCHES, RESCALE],
    "flows/langevin": ["flows/test_langevin", LANGEVIN, RESCALE, CLOSED_FORMS],
    "algorithms/": ["_core/test_checks", STEIN, LANGEVIN, RESCALE, CONTRACT, CLOSED_FORMS, BATCHES],
}
# Processes that begin with these imported, and without the package and what checks its types.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["jax", "optax", "scipy.stats"])
COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.MatMult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
}  # fmt: skip


class Mutant(NamedTuple):
    """A module with one change.

    Attributes:
        path: of the module, relative to the package.
        line: where the change is.
        source: the changed module.
        change: the lines that differ.
    """

    path: str
    line: int
    source: str
    change: str


def main() -> int:
    """Reads the command line, runs the mutants and prints what became of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--module", default="", help="only modules whose path holds this")
    parser.add_argument("--sample", type=int, help="how many of them, at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one mutant")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    given = parser.parse_args()
    found = [m for path in modules(given.module) for m in mutants_of(path)]
    if given.sample is not None:
        found = random.Random(given.seed).sample(found, min(given.sample, len(found)))
    print(f"{len(found)} mutants", flush=True)
    if given.list:
        print("\n".join(f"{m.path}:{m.line}\n{m.change}" for m in found))
        return 0
    fates = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        whole = {kind(m.path): m._replace(source=(PACKAGE / m.path).read_text()) for m in found}
        for mutant, verdict in pool.map(lambda m: (m, fate(m, 3600)), whole.values()):
            if verdict != "SURVIVED":
                sys.exit(f"The tests of {mutant.path} fail without a mutant: {verdict}")
        print("The tests pass without a mutant.", flush=True)
        for mutant, verdict in pool.map(lambda m: (m, fate(m, given.timeout)), found):
            fates[verdict.split()[0]] += 1
            print(f"{verdict}  {mutant.path}:{mutant.line}\n{mutant.change}", flush=True)
    print(f"Of {len(found)}: " + ", ".join(f"{count} {fate}" for fate, count in fates.items()))
    return 0


def modules(part: str) -> list[Path]:
    """The modules that have a line in `TESTS`, or those whose path holds `part`."""
    paths = {str(p.relative_to(PACKAGE)): p for p in sorted(PACKAGE.rglob("*.py"))}
    tested = [name for name in paths if any(part in name for part in TESTS)]
    return [paths[name] for name in tested if part in name and "__init__" not in name]


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every mutant of a module; comments and layout are lost in all of them alike."""
    tree = ast.parse(path.read_text())
    plain = ast.unparse(tree)
    seen = {plain}
    for index, node in enumerate(ast.walk(tree)):
        for number in range(len(list(changes(copy.deepcopy(node))))):
            other = copy.deepcopy(tree)
            target = list(ast.walk(other))[index]
            change = list(changes(target))[number]
            change()
            source = ast.unparse(other)
            if source not in seen:
                seen.add(source)
                yield Mutant(
                    str(path.relative_to(PACKAGE)),
                    getattr(node, "lineno", 0),
                    source,
                    difference(plain, source),
                )


def changes(node: ast.AST) -> Iterator:
    """Functions that change this node in place, one way each."""

    def to(**fields):
        return lambda: [setattr(node, name, value) for name, value in fields.items()]

    match node:
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            yield to(op=OPERATORS[type(op)]())
        case ast.Compare(ops=[op, *rest]):
            yield to(ops=[COMPARISONS[type(op)](), *rest])
        case ast.BoolOp(op=op):
            yield to(op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.Constant(value=bool(value)):
            yield to(value=not value)
        case ast.Constant(value=int() | float() as value):
            yield from (to(value=value + 1), to(value=value - 1), to(value=value * 2))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield to(op=ast.UAdd(), operand=operand)
        case ast.If(test=ast.UnaryOp(op=ast.Not(), operand=test)):
            yield to(test=test)
        case ast.If(test=test) | ast.IfExp(test=test):
            yield to(test=ast.UnaryOp(ast.Not(), test))
        case ast.Call(args=args, keywords=keywords):
            if len(args) == 2 and not any(isinstance(a, ast.Starred) for a in args):
                yield to(args=args[::-1])
            for i in range(len(keywords)):
                yield to(keywords=keywords[:i] + keywords[i + 1 :])


def difference(before: str, after: str) -> str:
    """The changed lines, old and new."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return "\n".join(f"    {line}" for line in list(lines)[2:] if not line.startswith("@@"))


def kind(path: str) -> str:
    """The line of `TESTS` that a module belongs to."""
    return next(part for part in TESTS if part in path)


def fate(mutant: Mutant, timeout: float) -> str:
    """Runs the module's tests on a copy of the package with the mutant in it."""
    names = TESTS[kind(mutant.path)]
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "marginax"
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / mutant.path).write_text(mutant.source)
        said = Path(folder) / "said"
        for tier in ("not slow", "slow"):
            child = SERVER.Process(target=run_tests, args=(folder, names, tier, said))
            child.start()
            child.join(timeout)
            if child.is_alive():
                child.kill()
                child.join()
                return "TIMED OUT"
            if child.exitcode != 0:
                break
        else:
            return "SURVIVED"
        lines = said.read_text().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    if not failed:  # a process that ended otherwise says nothing about the tests
        return f"BROKEN {lines[-3:]}"
    return f"killed by {failed[0].split()[1].split('/')[-1]}"


def run_tests(folder: str, names: list[str], tier: str, said: Path) -> None:
    """In a process of its own: the tests, with the package in `folder` instead of ours."""
    with said.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    os.environ |= {
        "PYTHONPATH": folder,
        # Most programs are those of the package without the mutant: they are compiled once.
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    os.chdir(ROOT)
    files = [str(ROOT / "tests" / f"{name}.py") for name in names]
    options = ["-x", "-m", tier, "--tb=no", "-p", "no:cacheprovider", "--no-header"]
    os._exit(pytest.main([*options, *files]))


if __name__ == "__main__":
    sys.exit(main())
