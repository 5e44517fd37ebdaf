"""The tables of docs/trust.md, from the code: `python docs/sentences.py` writes them there.

Every text of the package that reads as a sentence is found, wherever it stands, unless it is raised
as an error. `sentences.toml` says what each means and what to do; `unexplained` are those it has
nothing on, and `left_over` what it has and no code says.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "src" / "marginax"
PAGE = HERE / "trust.md"
# The shell's own words, the paper's report and models' descriptions are no verdicts.
NOT_READ = {"cli", "reproduction", "models"}
HEADINGS = {
    "fit_warnings": ("it says", "it means", "what to do"),
    "fit_notes": ("it says", "it means"),
    "formulas": ("it says", "it means", "what to do"),
    "comparisons": ("it says", "it means", "what to do"),
    "run_reasons": ("it says", "status, and what it means", "what to do"),
    "cloud": ("it says", "it means", "what to do"),
    "python_warnings": ("it says", "it means", "what to do"),
    "refusals": ("it says", "it means", "what to do"),
}
EXPLAINED = tomllib.loads((HERE / "sentences.toml").read_text())


def text_of(node: ast.AST) -> str | None:
    """A text of the code in one line, with … for what is filled in."""
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        parts = [re.sub(r"\{[^{} ]*\}", "…", node.value)]
    else:
        return None
    return re.sub("…+", "…", " ".join("".join(map(str, parts)).split()))


def reads_as_a_sentence(text: str) -> bool:
    """Some words, the first no sign, and a stop after or between them."""
    return bool(re.match(r"[\w…](\S* +){3}", text) and re.search(r"\w.*([.:;] |[.:]$)", text))


def said_in(node: ast.AST) -> Iterator[str]:
    """The sentences of a file, without docstrings and errors."""
    for child in ast.iter_child_nodes(node):
        is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        name = getattr(child.func, "id", "") if isinstance(child, ast.Call) else ""
        if isinstance(child, ast.Raise) or is_docstring or name.endswith("Error"):
            continue
        text = text_of(child)
        if text is None:
            yield from said_in(child)
        elif reads_as_a_sentence(text):
            yield text


@cache
def sentences() -> list[str]:
    """Of the whole package, each once."""
    files = [
        p for p in sorted(PACKAGE.rglob("*.py")) if p.relative_to(PACKAGE).parts[0] not in NOT_READ
    ]
    return list(
        dict.fromkeys(text for path in files for text in said_in(ast.parse(path.read_text())))
    )


def beginnings() -> list[str]:
    """All that is explained, or known to be no verdict."""
    known = [text for some in EXPLAINED["elsewhere"].values() for text in some]
    for name in HEADINGS:
        for entry in EXPLAINED[name]:
            says = entry["says"]
            known += [says] if isinstance(says, str) else says
    return known


def unexplained() -> list[str]:
    """Sentences of the code that nothing is known of."""
    known = beginnings()
    return [text for text in sentences() if not any(map(text.startswith, known))]


def left_over() -> list[str]:
    """What is explained, and no code says; of what is put together, no part."""
    said = sentences()
    composed = {
        part
        for name in HEADINGS
        for entry in EXPLAINED[name]
        if entry.get("composed")
        for part in entry["says"][:1]
    }
    return [
        text
        for text in beginnings()
        if text not in composed and not any(one.startswith(text) for one in said)
    ]


def whole(says: str | list[str], composed: bool = False) -> str:
    """A sentence as the code has it, from its beginning or from those of its parts."""
    said = sentences()
    parts = [says] if isinstance(says, str) else says
    found = [next((text for text in said if text.startswith(part)), part) for part in parts]
    if composed:
        found[0] = parts[0]
    return " ".join(found)


def pattern(entry: dict) -> re.Pattern[str]:
    """That a sentence of a fit matches if it is this one."""
    text = whole(entry["says"], entry.get("composed", False))
    return re.compile(r"[\s\S]*".join(map(re.escape, re.split("…+", text))))


def table(name: str) -> str:
    """In Markdown."""
    heads = HEADINGS[name]
    rows = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for entry in EXPLAINED[name]:
        says = whole(entry["says"], entry.get("composed", False)).replace("|", r"\|")
        cells = [f"*{says}*" if "*" not in says else says, entry["means"], entry.get("do")]
        rows.append(f"| {' | '.join(cell for cell in cells if cell)} |")
    return "\n".join(rows) + "\n"


def written(page: str) -> str:
    """The page with its tables as they should be."""
    for name in HEADINGS:
        begin, end = f"<!-- {name}: made by docs/sentences.py -->\n", f"<!-- end of {name} -->"
        before, rest = page.split(begin)
        page = before + begin + "\n" + table(name) + "\n" + end + rest.split(end)[1]
    return page


if __name__ == "__main__":
    for text in unexplained():
        print(f"Not in sentences.toml: {text}")
    for text in left_over():
        print(f"No code says: {text}")
    PAGE.write_text(written(PAGE.read_text()))
