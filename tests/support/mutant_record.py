"""What became of all mutants, kept in the repository: `benchmarks/results/mutants.json` and `.md`.

A module's entry is of the code it names: once that changes, all its mutants count as untried. Of
those that were killed the number is kept, of survivors the change and why no test sees it, which
is written into the file by hand and stays there as long as the change does.
"""

import collections
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

RECORD = Path(__file__).parents[2] / "benchmarks" / "results" / "mutants.json"
OPEN = "survived a first, short try; not looked at yet"


def code_of(plain_source: str) -> str:
    """A checksum of a module without its comments and layout."""
    return hashlib.sha256(plain_source.encode()).hexdigest()[:16]


def read() -> dict[str, dict]:
    """By module: `code`, the number of `mutants`, and `survivors` with line, change and why."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def fates_of(path: str, code: str, mutants: list, record: dict[str, dict]) -> dict[str, str]:
    """By name the fate of every mutant of a module, if the record is of its code."""
    entry = record.get(path)
    if entry is None or entry["code"] != code:
        return {}
    why = {one["change"]: one["why"] for one in entry["survivors"]}
    return {m.name: survived(why[m.change]) if m.change in why else "killed" for m in mutants}


def survived(why: str) -> str:
    """The fate of a survivor: by itself, or with the reason why no test sees it."""
    return "SURVIVED" if why == OPEN else f"SURVIVED because: {why}"


def entry_of(code: str, mutants: list, fates: dict[str, str], before: dict | None) -> dict:
    """Of a module all of whose mutants were tried."""
    known = {one["change"]: one["why"] for one in (before or {"survivors": ()})["survivors"]}
    survivors = [
        {"line": m.lines[0], "change": m.change, "why": known.get(m.change, OPEN)}
        for m in mutants
        if fates[m.name].startswith("SURVIVED")
    ]
    return {"code": code, "mutants": len(mutants), "survivors": survivors}


def write(record: dict[str, dict], untried: dict[str, int]) -> None:
    """The record, and the page that says it in words, and of which modules it knows too little."""
    RECORD.write_text(json.dumps(dict(sorted(record.items())), indent=1, ensure_ascii=False) + "\n")
    RECORD.with_suffix(".md").write_text(page(record, untried))


def page(record: dict[str, dict], untried: dict[str, int]) -> str:
    """A table by folder, what is not in it, and all survivors by the reason why."""
    folders: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    reasons: dict[str, list[str]] = collections.defaultdict(list)
    for path, entry in sorted(record.items()):
        for row in (f"`{path.split('/')[0]}/`", "all"):
            folders[row]["mutants"] += entry["mutants"]
            folders[row]["survivors"] += len(entry["survivors"])
            folders[row]["equivalent"] += sum(map(is_equivalent, entry["survivors"]))
        for one in entry["survivors"]:
            reasons[one["why"]].append(f"`{path}:{one['line']}` {shown(one['change'])}")
    some = ", ".join(f"`{path}` ({mutants})" for path, mutants in untried.items())
    left = ["", f"Not tried to the end, and not in the table: {some}."] if untried else []
    return "\n".join([HEAD, *table(folders.items()), *left, "", SURVIVORS, *lists(reasons), ""])


def is_equivalent(survivor: dict) -> bool:
    """Whether the numbers are the same with the change: neither a setting nor an open one."""
    return survivor["why"] != OPEN and "setting" not in survivor["why"]


def table(rows: Iterable[tuple[str, collections.Counter]]) -> list[str]:
    """By folder: how many, how many were killed, and of those that change a number at all."""
    lines = [
        "| | mutants | killed | killed, % | equivalent | killed of the others, % |",
        "|---|---|---|---|---|---|",
    ]
    for name, count in sorted(rows, key=lambda row: (row[0] == "all", row[0])):
        mutants, equivalent = count["mutants"], count["equivalent"]
        killed = mutants - count["survivors"]
        of_all, of_others = 100 * killed / mutants, 100 * killed / (mutants - equivalent)
        counts = f"{mutants:,} | {killed:,} | {of_all:.1f} | {equivalent:,} | {of_others:.1f}"
        lines.append(f"| {name} | {counts} |")
    return lines


def lists(reasons: dict[str, list[str]]) -> list[str]:
    """Every reason with its mutants, those of most mutants first."""
    lines = []
    for why, mutants in sorted(reasons.items(), key=lambda item: -len(item[1])):
        lines += ["", f"**{why[0].upper()}{why[1:]}** ({len(mutants)})", ""]
        lines += [f"- {one}" for one in mutants]
    return lines


def shown(change: str) -> str:
    """Lines of a difference in one: what stood there, and what the mutant has."""
    lines = [line.strip() for line in change.splitlines()]
    before = " ".join(line[1:].strip() for line in lines if line.startswith("-"))
    after = " ".join(line[1:].strip() for line in lines if line.startswith("+"))
    return f"`{before}` → `{after}`" if len(before + after) < 400 else f"`{after[:400]}` …"


HEAD = """# Mutants

Small bugs put into `flows/`, `kernels/`, `algorithms/`, `likelihood/` and `fitting/warnings.py`,
one at a time, each tried on the tests that run the changed line. Numbers with names in capitals at
the head of a module (how many, how long, where one way ends and the next begins) are left as they
are, because their neighbours would do as well; how they are used is changed. The record is
`mutants.json` beside this page; of a module that has changed since, `--report` says that its
mutants are untried.

```
make coverage
python tests/support/mutants.py --jobs 2
python tests/support/mutants.py --jobs 2 --again --seconds 60     survivors, on more tests
python tests/support/mutants.py --record
```

Equivalent is what gives the same numbers with the change, whether always, but for rounding, or
but for two floats that are equal by chance. Settings whose neighbours do as well are not counted as
equivalent: they are survivors.
"""
SURVIVORS = """## Survivors

By the reason why no test sees them; what a mutant has stands behind the arrow. Most reasons were
given to all changes of one kind on a line together, by reading, and not tried one by one."""
