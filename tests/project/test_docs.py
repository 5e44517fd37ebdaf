"""The site's pages name everything public, lead somewhere, and hold code that is Python."""

import ast
import re
import runpy
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import marginax as mx
from marginax import algorithms

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "api").glob("*.md")])
TEXTS = [*PAGES, *ROOT.glob("*.md")]
BLOCK = re.compile(r"^```(\S*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
PUBLIC = [name for name in mx.__all__ if isinstance(getattr(mx, name), ModuleType)]


def _documented() -> set[str]:
    """Full names that the pages of docs/api have an entry for."""
    page = "\n".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    names = set(re.findall(r"\.\. auto(?:function|class|exception):: (\S+)", page))
    for module, members in re.findall(r"automodule:: (\S+)\n +:members: (.+)", page):
        names |= {f"{module}.{member.strip()}" for member in members.split(",")}
    return names | set(re.findall(r"^`(marginax\.\S+)`", page, flags=re.MULTILINE))


@pytest.mark.parametrize("name", ["", *PUBLIC])
def test_every_public_name_is_in_the_reference(name):
    module = getattr(mx, name) if name else mx
    full = f"marginax.{name}".rstrip(".")
    names = {f"{full}.{name}" for name in module.__all__}
    assert names - {f"marginax.{name}" for name in PUBLIC} <= _documented()


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.name)
def test_links_between_files_lead_somewhere(text):
    prose = BLOCK.sub("", text.read_text())
    for target in re.findall(r"\]\(([^)#\s]+)", prose):
        if "://" not in target and not target.startswith("gallery/"):  # made by the build
            assert (text.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_code_on_the_pages_is_python(page):
    for language, code in BLOCK.findall(page.read_text()):
        if language == "python":
            ast.parse(code)


@pytest.mark.slow
def test_the_code_for_users_of_other_tools_runs(as_users_write):
    namespace = {}
    for language, code in BLOCK.findall((ROOT / "docs" / "from_other_tools.md").read_text()):
        if language == "python":
            exec(code, namespace)
    fit, same = namespace["fit"], namespace["same"]
    assert fit.ok
    assert same.ok
    np.testing.assert_allclose(np.sort(same.estimates), np.sort(fit.estimates), atol=1e-3)


def test_the_code_for_users_of_lme4_runs(as_users_write, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    namespace = {}
    for language, code in BLOCK.findall((ROOT / "docs" / "mixed.md").read_text()):
        if language == "python":
            exec(code, namespace)
    assert "logLik -875.970" in capsys.readouterr().out
    assert namespace["fit"].ok


def test_the_table_of_methods_is_what_the_code_says():
    made = runpy.run_path(str(ROOT / "docs" / "method_table.py"))
    assert set(made["MOVES"]) == set(algorithms.__all__) - {"Algorithm"}
    page = (ROOT / "docs" / "api" / "algorithms.md").read_text()
    assert made["written"](page) == page
