"""Which tests a mutant is tried on, and the trying: a process for each, forked from one.

The parent has imported JAX, pytest and the package, its types checked as in `make test`, and
computes nothing: a process that has used JAX cannot be forked. A child puts the mutant's code into
the functions that are there, or imports the package anew, without checks of types, where the change
is of what runs at import, and runs tests until one fails.
"""

import ast
import contextlib
import gc
import importlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import types
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from multiprocessing.connection import wait
from pathlib import Path

import coverage
import jax  # noqa: F401  for the children
import jaxtyping
import jaxtyping._import_hook as import_hook
import optax  # noqa: F401
import pytest
import scipy.stats  # noqa: F401
from mutants import PACKAGE, ROOT, Mutant, mutated

CHECKER = "beartype.beartype"
TYPE_CHECKS = jaxtyping.install_import_hook("marginax", CHECKER)
import marginax  # noqa: E402, F401

COVERED = ROOT / ".coverage"
TIMES = ROOT / ".pytest_cache"  # files called times*.xml; the last by the alphabet wins
FORK = multiprocessing.get_context("fork")
OPTIONS = [
    "-x", "-q", "--tb=no", "--no-header", "--import-mode=importlib", "-o", "addopts=",
    "-p", "no:cacheprovider", "-p", "no:unraisableexception", "-p", "no:threadexception",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",  # plugins are imported already
]  # fmt: skip
NEARBY = 4  # so many kills in the module count as one in the function
STARTING = 25.0  # seconds that a child may take before and beside its tests


def run(
    mutants: list[Mutant], jobs: int, seconds: float, tests: list[str] | None = None
) -> Iterator[tuple[Mutant, str]]:
    """Tries the mutants, some at a time.

    Args:
        mutants: to be tried.
        jobs: how many at a time.
        seconds: of tests for one of them, as long as they took with coverage; one that takes
            five times as long, and half a minute, never ends.
        tests: to try instead of those that run its lines, or the files they are in.

    Yields:
        Each with "killed by ...", "killed: ..." or "SURVIVED", as they end.
    """
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # a third of a second
    import_everything()
    functions_of_package()
    gc.collect()
    gc.freeze()  # or every child would go through all that is imported
    there = collected()
    if tests:  # one by one, because one that fails without a mutant is left out
        tests = [name for name in there if name.startswith(tuple(tests))]
        if not tests:
            raise SystemExit("--tests: there are no such tests.")
        seconds = max(seconds, sum(seconds_of(name) for name in tests))
    kills: dict[str, Counter] = defaultdict(Counter)
    sound: dict[tuple[str, bool], bool] = {}  # whether a test passes here without a mutant
    waiting = list(reversed(mutants))
    running: dict[int, tuple] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            own_codes(str(PACKAGE / mutant.path))  # for all children
            names = tests or [name for name in tests_of(mutant, kills, seconds) if name in there]
            names = [test for test in names if sound.get((test, mutant.at_import), True)]
            if not names:
                yield mutant, "SURVIVED"
                continue
            child, pipe = start(mutant, names)
            limit = time.monotonic() + STARTING + 5 * seconds
            running[child.sentinel] = (mutant, names, child, pipe, limit)
        ready = wait(list(running), timeout=1.0)
        for sentinel, (mutant, names, child, pipe, limit) in list(running.items()):
            late = time.monotonic() > limit
            if sentinel not in ready and not late:
                continue
            del running[sentinel]
            if late and child.is_alive():
                child.kill()
                child.join()
                yield mutant, "killed: it never ended"
                continue
            child.join()
            failed, anew = None, False
            with contextlib.suppress(EOFError):  # of a process that was ended
                failed, anew = pipe.recv()
            pipe.close()
            mutant = mutant._replace(at_import=anew)
            if failed is None:
                yield mutant, f"killed: the process ended with {child.exitcode}"
            elif failed == "":
                yield mutant, "SURVIVED"
            elif passes(failed if "::" in failed else names[0], mutant, sound):
                kills[mutant.path][failed] += 1
                kills[function_of(mutant)][failed] += NEARBY
                yield mutant, f"killed by {failed}"
            else:
                waiting.append(mutant)


def collected() -> dict[str, None]:
    """The tests that can be named, in order: pytest refuses a list in which one is not there."""
    ours, theirs = FORK.Pipe(duplex=False)

    class Names:
        def pytest_collection_finish(self, session) -> None:
            theirs.send(dict.fromkeys(item.nodeid for item in session.items))

    def collect() -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.argv = ["pytest"]
        pytest.main([*OPTIONS, "--collect-only", "tests"], plugins=[Names()])
        os._exit(0)

    child = FORK.Process(target=collect)
    child.start()
    if not ours.poll(300):
        raise SystemExit("The tests cannot be collected: is `make test` green?")
    names = ours.recv()
    child.join()
    return names


def passes(test: str, mutant: Mutant, sound: dict[tuple[str, bool], bool]) -> bool:
    """Whether a test passes without the mutant, in such a process, and with the same imports."""
    kind = (test, mutant.at_import)
    if kind not in sound:
        child, pipe = start(unchanged(mutant) if mutant.at_import else None, [test])
        child.join(600)
        sound[kind] = bool(pipe.poll()) and pipe.recv()[0] == ""
        if not sound[kind]:
            anew = ", imported anew" if mutant.at_import else ""
            print(f"Left out: {test} fails without a mutant{anew}.", flush=True)
    return sound[kind]


def unchanged(mutant: Mutant) -> Mutant:
    """The mutant without its change."""
    return mutant._replace(source=ast.unparse(ast.parse((PACKAGE / mutant.path).read_text())))


def start(mutant: Mutant | None, names: list[str]):
    """A process that tries the tests; it sends the first that failed, or an empty name, and how."""
    ours, theirs = FORK.Pipe(duplex=False)
    child = FORK.Process(target=tried, args=(mutant, names, theirs))
    child.start()
    theirs.close()
    return child, ours


def tried(mutant: Mutant | None, names: list[str], pipe) -> None:
    """In the child: the tests, with the mutant, and whether it imported the package anew."""
    os.setpgrp()
    with tempfile.TemporaryDirectory() as folder:
        said = os.open(Path(folder) / "said", os.O_WRONLY | os.O_CREAT)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.chdir(ROOT)
        sys.argv = ["pytest"]
        anew = False
        try:
            if mutant is not None:
                anew = put_in(mutant, folder)
            watch = Watch()
            code = pytest.main([*OPTIONS, *names], plugins=[watch])
            failed = watch.failed or ("" if code == 0 else "collecting the tests")
        except BaseException as problem:  # of importing the package
            failed = f"importing: {type(problem).__name__}"
        pipe.send((failed, anew))
        pipe.close()
    os._exit(0)


class Watch:
    """Of pytest: the first test that failed."""

    failed = ""

    def pytest_runtest_logreport(self, report) -> None:
        """After each part of a test."""
        if report.failed and not self.failed:
            self.failed = report.nodeid


def put_in(mutant: Mutant, folder: str) -> bool:
    """Has this process run the mutant's code; whether that took importing the package anew."""
    from marginax._core import executables

    if not mutant.at_import:
        with contextlib.suppress(ValueError):  # of a closure, with other variables from outside
            replace_functions(mutant)
            # Machine code in files is found by the sources, which are as they were.
            executables._versions = lambda: mutant.name
            return False
    package = Path(folder) / "marginax"
    shutil.copytree(PACKAGE, package)  # with what is compiled already
    (package / mutant.path).write_text(mutant.source)
    for name in [name for name in sys.modules if name.split(".")[0] == "marginax"]:
        del sys.modules[name]
    TYPE_CHECKS.uninstall()  # they make every import ten times as long
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    os.environ["PYTHONPATH"] = folder
    assert importlib.import_module("marginax").__file__.startswith(folder)
    return True


def replace_functions(mutant: Mutant) -> None:
    """Gives every function of the module the code that it has in the mutant."""
    file = str(PACKAGE / mutant.path)
    other = codes(compiled(mutated(mutant), file))
    own = own_codes(file)
    changed = {place: code for place, code in other.items() if own.get(place) != code}
    done = 0
    for function in functions_of_package().get(file, ()):
        place = next((p for p, code in own.items() if code == function.__code__), None)
        if place in changed:
            function.__code__ = changed[place]
            done += 1
    if not done:
        raise ValueError("no function has the changed code")


@cache
def functions_of_package() -> dict[str, list[types.FunctionType]]:
    """All functions that there are after the imports, by the file of their code."""
    found = defaultdict(list)
    for function in gc.get_objects():
        if isinstance(function, types.FunctionType):
            found[function.__code__.co_filename].append(function)
    return {file: some for file, some in found.items() if file.startswith(str(PACKAGE))}


@cache
def own_codes(file: str) -> dict[tuple, types.CodeType]:
    """Of a module as it is."""
    return codes(compiled(ast.parse(Path(file).read_text()), file))


def compiled(tree: ast.Module, file: str) -> types.CodeType:
    """As the import hook compiles a module whose types are checked."""
    checked = import_hook.JaxtypingTransformer(typechecker=import_hook.Typechecker(CHECKER))
    return compile(ast.fix_missing_locations(checked.visit(tree)), file, "exec", dont_inherit=True)


def codes(module: types.CodeType) -> dict[tuple, types.CodeType]:
    """Every function's code, by its name and line, and its number among those of the line."""
    found: dict[tuple, types.CodeType] = {}

    def visit(code: types.CodeType) -> None:
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                place = (constant.co_qualname, constant.co_firstlineno)
                number = sum(1 for other in found if other[:2] == place)
                found[(*place, number)] = constant
                visit(constant)

    visit(module)
    return found


def import_everything() -> None:
    """All modules of the package and what tests import, so that children find them imported."""
    for name in ("formulae", "matplotlib.pyplot", "narwhals", "numpyro", "sklearn.linear_model"):
        with contextlib.suppress(ImportError):
            __import__(name)
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(("marginax", *path.relative_to(PACKAGE).with_suffix("").parts))
        if "__" not in name:
            with contextlib.suppress(ImportError):
                __import__(name)


def function_of(mutant: Mutant) -> str:
    """Where in its module a mutant is."""
    return f"{mutant.path}:{mutant.function[0]}"


def tests_of(mutant: Mutant, kills: dict[str, Counter], seconds: float) -> list[str]:
    """The tests that run the changed lines, then those of its function and module.

    Those that killed others come first, of its function above all, then those of the module's own
    folder and the quickest, and all within `seconds`.
    """
    lines = covered(mutant.path)
    killed = kills[mutant.path] + kills[function_of(mutant)]
    chosen: dict[str, float] = {}
    for first, last in (mutant.lines, mutant.function):
        seconds_by = {name: t for n in range(first, last + 1) for name, t in lines.get(n, ())}
        order = sorted(
            seconds_by,
            key=lambda test: cost(test, seconds_by[test], mutant.path) / (1 + 5 * killed[test]),
        )
        chosen |= {test: seconds_by[test] for test in order if test not in chosen}
    left, kept, files = seconds, [], set()
    for name, needed in chosen.items():
        file = _file(name)
        left -= seconds_of(name) if file in files else needed  # a fixture's once
        if left > 0 or not kept:
            kept.append(name)
            files.add(file)
    return kept


def cost(test: str, needed: float, path: str) -> float:
    """Seconds, fewer for a test that is more likely to look at this module closely."""
    folder, module = path.rsplit("/", 1)
    own = 3 if test.startswith(f"tests/{folder}/") else 1
    named = 3 if module.removesuffix(".py").strip("_") in test.split("::")[0] else 1
    return (0.3 + needed) / (own * named)


def seconds_of(test: str) -> float:
    """That a test took; of one that is not known, a second."""
    return times().get(test, 1.0)


@cache
def covered(path: str) -> dict[int, set[tuple[str, float]]]:
    """The tests that run each line of a module, with their seconds.

    Lines that a fixture runs are its first test's alone, though all tests of the file may have it:
    there they all count, and need as long.
    """
    data = coverage.CoverageData(str(COVERED))
    data.read()
    file = next(f for f in data.measured_files() if f.endswith(f"/marginax/{path}"))
    by_file: dict[str, set[str]] = defaultdict(set)
    for name in times():
        by_file[_file(name)].add(name)
    found: dict[int, set[tuple[str, float]]] = {}
    for line, contexts in data.contexts_by_lineno(file).items():
        names: dict[str, float] = {}
        for context in filter(None, contexts):
            name, _, part = context.rpartition("|")
            if name.startswith("tests/"):
                needed = seconds_of(name)
                if part == "setup":
                    names |= {other: needed + seconds_of(other) for other in by_file[_file(name)]}
                names[name] = needed
        found[line] = set(names.items())
    return found


def _file(test: str) -> str:
    return test.split("::")[0]


@cache
def times() -> dict[str, float]:
    """Seconds of every test, as pytest wrote them."""
    found = {}
    for file in sorted(TIMES.glob("times*.xml")):
        for case in ElementTree.parse(file).iter("testcase"):
            folder = case.get("classname").replace(".", "/")
            found[f"{folder}.py::{case.get('name')}"] = float(case.get("time"))
    return found
