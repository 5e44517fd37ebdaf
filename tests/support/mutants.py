"""Mutants: one small bug at a time in the package, and whether a test sees it.

    make coverage                                              # which tests run which lines
    python tests/support/mutants.py --module flows/ --jobs 2 --results mutants.jsonl
    python tests/support/mutants.py --results mutants.jsonl --report
    python tests/support/mutants.py --results mutants.jsonl --record

Not a test, and not collected. A mutant is tried on the tests that run its line, the quickest and
those that killed others first; `mutant_runs` has that. Fates are written to a file as they come,
and a mutant whose fate is there is not tried again; `--record` keeps them in the repository, for
the modules that were tried whole (`mutant_record`). Survivors are either equivalent to what they
replaced or something that no test looks at. A mutant that never ends counts as killed: tests wait.
"""

import argparse
import ast
import collections
import contextlib
import difflib
import hashlib
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import mutant_record

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "marginax"
MODULES = ("flows/", "kernels/", "algorithms/", "likelihood/", "fitting/warnings.py")
COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.MatMult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
}  # fmt: skip
# Functions whose two arguments may change places.
SYMMETRIC = {"minimum", "maximum", "logaddexp", "min", "max", "vdot", "array_equal"}


class Mutant(NamedTuple):
    """A module with one change.

    Attributes:
        path: of the module, relative to the package.
        lines: of what is changed, first and last.
        function: first and last line of the function it is in, which are the module's if in none.
        at_import: whether the change is of what runs when the module is imported.
        change_number: of the node, and of the change of it.
        source: the changed module.
        change: the lines that differ.
    """

    path: str
    lines: tuple[int, int]
    function: tuple[int, int]
    at_import: bool
    change_number: tuple[int, int]
    source: str
    change: str

    @property
    def name(self) -> str:
        """The same in every run, as long as the module is."""
        told = hashlib.sha256(self.source.encode()).hexdigest()[:16]
        return f"{self.path}:{self.lines[0]}:{told}"


def main() -> int:
    """Reads the command line, runs the mutants and prints what became of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--module", default="", help="only modules whose path holds this")
    parser.add_argument("--sample", type=int, help="how many of them, at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20, help="of tests for one mutant")
    parser.add_argument("--results", type=Path, default=Path("mutants.jsonl"))
    parser.add_argument(
        "--again", action="store_true", help="survivors without a reason are tried once more"
    )
    parser.add_argument("--tests", nargs="+", help="these alone, for new ones or long ones")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    parser.add_argument("--report", action="store_true", help="print the table and the survivors")
    parser.add_argument("--record", action="store_true", help="keep fates of modules tried whole")
    given = parser.parse_args()
    by_module = {path: list(mutants_of(path)) for path in modules(given.module)}
    fates = known_fates(by_module) | read(given.results)
    if given.record:
        write_record(by_module, fates)
        return 0
    chosen = [mutant for mutants in by_module.values() for mutant in mutants]
    if given.sample is not None:
        chosen = random.Random(given.seed).sample(chosen, min(given.sample, len(chosen)))
    if given.list:
        print("\n".join(f"{m.name}\n{m.change}" for m in chosen))
        return 0
    if given.report:
        report(chosen, fates)
        return 0
    if given.again:
        fates = {name: fate for name, fate in fates.items() if fate != "SURVIVED"}
    left = [m for m in chosen if m.name not in fates]
    print(f"{len(chosen)} mutants, {len(left)} of them not tried yet", flush=True)
    from mutant_runs import run  # JAX and the package are imported there

    with given.results.open("a") as file:
        for mutant, fate in run(left, given.jobs, given.seconds, given.tests):
            file.write(json.dumps({"mutant": mutant.name, "fate": fate}) + "\n")
            file.flush()
            print(f"{fate}  {mutant.path}:{mutant.lines[0]}\n{mutant.change}", flush=True)
    report(chosen, fates | read(given.results))
    return 0


def known_fates(by_module: dict[Path, list[Mutant]]) -> dict[str, str]:
    """Of all mutants whose modules are as they were when the record was made."""
    record = mutant_record.read()
    fates: dict[str, str] = {}
    for path, mutants in by_module.items():
        fates |= mutant_record.fates_of(name_of(path), code_of(path), mutants, record)
    return fates


def write_record(by_module: dict[Path, list[Mutant]], fates: dict[str, str]) -> None:
    """Keeps what became of the modules whose mutants were all tried, and names the others."""
    record = mutant_record.read()
    untried = {}
    for path, mutants in by_module.items():
        left = sum(1 for mutant in mutants if mutant.name not in fates)
        if left:
            print(f"{name_of(path)}: {left} of {len(mutants)} not tried")
            untried[name_of(path)] = len(mutants)
            record.pop(name_of(path), None)
            continue
        before = record.get(name_of(path))
        record[name_of(path)] = mutant_record.entry_of(code_of(path), mutants, fates, before)
    mutant_record.write(record, untried)


def name_of(path: Path) -> str:
    """Of a module, relative to the package."""
    return str(path.relative_to(PACKAGE))


def code_of(path: Path) -> str:
    """Of a module, whatever its comments and layout."""
    return mutant_record.code_of(ast.unparse(ast.parse(path.read_text())))


def read(file: Path) -> dict[str, str]:
    """The fates of all mutants that were tried; the last one counts."""
    if not file.exists():
        return {}
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {row["mutant"]: row["fate"] for row in rows}


def report(chosen: list[Mutant], fates: dict[str, str]) -> None:
    """A table by module, and every survivor."""
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for mutant in chosen:
        fate = fates.get(mutant.name, "untried").split()[0]
        for row in (mutant.path, mutant.path.split("/")[0], "all"):
            counts[row][fate] += 1
    for mutant in chosen:
        if fates.get(mutant.name) == "SURVIVED":
            print(f"SURVIVED  {mutant.name}\n{mutant.change}")
    print("\n| | mutants | tried | killed | killed, % |\n|---|---|---|---|---|")
    for row, found in sorted(counts.items()):
        tried = found.total() - found["untried"]
        killed = tried - found["SURVIVED"]
        share = f"{100 * killed / tried:.1f}" if tried else ""
        print(f"| {row} | {found.total()} | {tried} | {killed} | {share} |")


def modules(part: str) -> list[Path]:
    """Of the modules that are looked at, those whose path holds `part`."""
    paths = {str(p.relative_to(PACKAGE)): p for p in sorted(PACKAGE.rglob("*.py"))}
    tested = [name for name in paths if name.startswith(MODULES)]
    return [paths[name] for name in tested if part in name and "__init__" not in name]


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every mutant of a module; comments and layout are lost in all of them alike."""
    tree = ast.parse(path.read_text())
    plain = [ast.unparse(statement) for statement in tree.body]
    seen = set()
    for number, (top, node, place) in enumerate(nodes_of(tree)):
        for way, change in enumerate(list(changes(node))):
            with made(change):
                one = ast.unparse(tree.body[top])
            if one == plain[top] or (top, one) in seen:
                continue
            seen.add((top, one))
            yield Mutant(
                name_of(path),
                *place,
                (number, way),
                "\n".join([*plain[:top], one, *plain[top + 1 :]]),
                difference(plain[top], one),
            )


def mutated(mutant: Mutant) -> ast.Module:
    """The module's tree with the change, its nodes at the places that they have in the file."""
    tree = ast.parse((PACKAGE / mutant.path).read_text())
    number, way = mutant.change_number
    _, node, _ = list(nodes_of(tree))[number]
    change = list(changes(node))[way]
    change.make()
    return ast.fix_missing_locations(tree)


def nodes_of(tree: ast.Module) -> Iterator[tuple[int, ast.AST, tuple]]:
    """Every node, with the number of its statement and the first fields of its `Mutant`.

    What a function's head says (defaults, decorators) runs at import; the lines whose tests see it
    are those of its body all the same.
    """
    module = (1, max(node.end_lineno for node in tree.body))

    def visit(node, top, lines, function, inside):
        if hasattr(node, "lineno"):
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if isinstance(body, list) else node.end_lineno
            lines = (node.lineno, max(node.lineno, end))
        yield top, node, (lines, function, not inside)
        is_function = isinstance(node, ast.FunctionDef | ast.Lambda)
        if is_function and not inside:
            body = node.body if isinstance(node.body, list) else [node.body]
            function = (body[0].lineno, node.end_lineno)
        for field, value in ast.iter_fields(node):
            children = value if isinstance(value, list) else [value]
            for child in children:
                if isinstance(child, ast.AST) and not is_safeguard(child):
                    in_body = inside or (is_function and field == "body")
                    yield from visit(child, top, lines, function, in_body)

    for top, statement in enumerate(tree.body):
        if not is_setting(statement):
            yield from visit(statement, top, module, module, False)


def is_setting(statement: ast.stmt) -> bool:
    """Whether this gives numbers a name: `MOST_STEPS = 100`, to which 101 would do as well."""
    if not isinstance(statement, ast.Assign):
        return False
    names = [n for n in ast.walk(statement) if isinstance(n, ast.Name)]
    targets = [n for target in statement.targets for n in ast.walk(target)]
    return all(n in targets and n.id == n.id.upper() and n.id[0] != "_" for n in names)


def is_safeguard(node: ast.AST) -> bool:
    """Whether this is the `strict=` of `zip`, which nothing that is right can see."""
    return isinstance(node, ast.keyword) and node.arg == "strict"


class Change(NamedTuple):
    """Other fields for a node."""

    node: ast.AST
    fields: dict

    def make(self) -> None:
        """In place."""
        for name, value in self.fields.items():
            setattr(self.node, name, value)


@contextlib.contextmanager
def made(change: Change) -> Iterator[None]:
    """The change, as long as this lasts."""
    before = Change(change.node, {name: getattr(change.node, name) for name in change.fields})
    change.make()
    yield
    before.make()


def changes(node: ast.AST) -> Iterator[Change]:
    """All that may be changed of this node, one thing each."""

    def to(**fields):
        return Change(node, fields)

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
            yield to(test=ast.copy_location(ast.UnaryOp(ast.Not(), test), test))
        case ast.Call(func=func, args=args, keywords=keywords):
            name = getattr(func, "attr", getattr(func, "id", ""))
            starred = any(isinstance(a, ast.Starred) for a in args)
            if len(args) == 2 and not starred and name not in SYMMETRIC:
                yield to(args=args[::-1])
            for i in range(len(keywords)):
                if not is_safeguard(keywords[i]):
                    yield to(keywords=keywords[:i] + keywords[i + 1 :])


def difference(before: str, after: str) -> str:
    """The changed lines, old and new."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return "\n".join(f"    {line}" for line in list(lines)[2:] if not line.startswith("@@"))


if __name__ == "__main__":
    sys.exit(main())
