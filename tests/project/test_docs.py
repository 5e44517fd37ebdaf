"""The site's pages name everything public, lead somewhere, and hold code that is Python."""

import ast
import importlib
import re
import runpy
from pathlib import Path
from types import ModuleType

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import marginax as mx
from marginax import algorithms
from marginax.cli.app import app
from marginax.likelihood import quadrature

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "api").glob("*.md")])
TEXTS = [*PAGES, *ROOT.glob("*.md")]
BLOCK = re.compile(r"^```(\S*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
START = (ROOT / "docs" / "start.md").read_text()
RUN = (ROOT / "docs" / "run.md").read_text()
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
    missing = names - {f"marginax.{name}" for name in PUBLIC} - _documented()
    assert not missing, "put an entry `.. autofunction:: NAME` on a page of docs/api"


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


def test_the_nodes_of_the_quadrature_rules():
    rules = {size: [str(order)] for size, order in quadrature.ORDERS.items()}
    reaching = {size: [] for size in rules}
    for size, finer in quadrature.FINER.items():
        for rule in finer:
            if isinstance(rule, int):
                rules[size].append(str(rule))
            else:
                reaching[size].append(str(quadrature.far_reaching(1, *rule).num_nodes))
    page = (ROOT / "docs" / "api" / "likelihood.md").read_text()
    for size, orders in rules.items():
        assert f"| {size} | {', '.join(orders)} | {', '.join(reaching[size])} |" in page


def _run_blocks(name, namespace=None):
    """Executes the Python of a page, one block after the other."""
    namespace = {} if namespace is None else namespace
    for language, code in BLOCK.findall((ROOT / "docs" / name).read_text()):
        if language == "python":
            exec(code, namespace)
    return namespace


# What a page calls a thing, and what that is.
THINGS = {
    "mx": [mx],
    "fit": [mx.Fit, mx.MixedFit],
    "run": [mx.Run],
    "problem": [mx.Problem],
    **{name: [getattr(mx, name)] for name in PUBLIC},
}
NAME = re.compile(rf"(?<![\w./]){'(' + '|'.join(THINGS) + ')'}\.([a-z_]\w*)(?!\w*\.(?:md|py|npz))")


@pytest.mark.parametrize("page", TEXTS, ids=lambda path: path.name)
def test_names_on_the_pages_are_there(page):
    if page.name == "CHANGELOG.md":
        return  # tells of names that were
    for code in re.findall(r"`[^`]+`", re.sub(r"^```\w*$", "`", page.read_text(), flags=re.M)):
        for thing, name in NAME.findall(code):
            owners = THINGS[thing]
            fields = set().union(*(getattr(o, "__dataclass_fields__", {}) for o in owners))
            there = any(hasattr(owner, name) for owner in owners) or name in fields
            assert there or name in ("py", "md", "npz", "csv"), f"{thing}.{name}"


@pytest.mark.parametrize("page", TEXTS, ids=lambda path: path.name)
def test_files_named_on_the_pages_are_there(page):
    if page.name == "CHANGELOG.md":
        return
    for name in re.findall(
        r"`((?:src|tests|docs|benchmarks|examples)/[\w./]+\.\w+)`", page.read_text()
    ):
        assert (ROOT / name).exists() or "your_" in name, name


@pytest.mark.slow
def test_the_code_of_the_first_steps_runs(as_users_write, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert CliRunner().invoke(app, ["new", "lmm"]).exit_code == 0
    _run_blocks("start.md")
    said = capsys.readouterr().out
    shown = "\n".join(re.findall(r"^```text\n(.*?)^```", START, flags=re.DOTALL | re.MULTILINE))
    rows = [line for line in shown.splitlines() if re.search(r"\[.+, .+\]$|^log lik|^CONV", line)]
    assert len(rows) == 15
    for row in rows:
        assert row in said


@pytest.mark.slow
def test_the_code_that_explains_m_svgd_em_is_the_algorithm():
    found = _run_blocks("m_svgd_em.md")
    np.testing.assert_allclose(found["theta"], found["same"].theta, rtol=1e-8)
    np.testing.assert_allclose(found["x"], found["same"].particles, rtol=1e-8)


@pytest.mark.slow
def test_the_code_about_running_runs(capsys):
    block = next(code for language, code in BLOCK.findall(RUN) if language == "python")
    with jax.numpy_rank_promotion("allow"):
        exec(block, {})
    said = capsys.readouterr().out.strip().splitlines()
    assert said[0].startswith("Run: converged")
    assert "holds 100 % of the posterior variance" in said[-2]
    fitted, exact = map(float, re.findall(r"-?\d+\.\d+", said[-1]))
    assert abs(fitted - exact) < 1e-3


@pytest.mark.slow
def test_the_code_for_users_of_other_tools_runs(as_users_write, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    found = _run_blocks("from_other_tools.md")
    fit, same = found["fit"], found["same"]
    assert fit.ok
    assert same.ok
    assert found["zeros"].ok
    assert found["series"].ok
    assert "a chain" in str(found["series"])
    np.testing.assert_allclose(np.sort(same.estimates), np.sort(fit.estimates), atol=1e-3)
    assert "logLik -875.970" in capsys.readouterr().out


def test_the_code_for_users_of_lme4_runs(as_users_write, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    found = _run_blocks("mixed.md")
    assert "logLik -875.970" in capsys.readouterr().out
    assert found["fit"].ok


def test_the_table_of_methods_is_what_the_code_says():
    made = runpy.run_path(str(ROOT / "docs" / "method_table.py"))
    methods = set(algorithms.__all__) - {"Algorithm"}
    assert set(made["MOVES"]) == methods, "MOVES of docs/method_table.py has a line per method"
    page = (ROOT / "docs" / "api" / "algorithms.md").read_text()
    assert made["written"](page) == page, "run `.venv/bin/python docs/method_table.py`"


def test_the_commands_are_what_the_shell_says():
    made = runpy.run_path(str(ROOT / "docs" / "command_table.py"))
    page = (ROOT / "docs" / "api" / "cli.md").read_text()
    assert made["written"](page) == page, "run `.venv/bin/python docs/command_table.py`"


def test_states_and_infos_are_what_the_code_has():
    page = (ROOT / "docs" / "notation.md").read_text().split("## States and infos")[1]
    rows = re.findall(r"^\| (`\w+`.*?) \| (.*?) ?\| (.+?) \|$", page, flags=re.MULTILINE)
    named = {}
    for methods, state, info in rows:
        fields = tuple(re.findall(r"`(\w+)`", text.split(";")[0]) for text in (state, info))
        named |= dict.fromkeys(re.findall(r"`(\w+)`", methods), fields)
    methods = set(algorithms.__all__) - {"Algorithm"}
    assert named.keys() == methods, '"States and infos" of docs/notation.md has a row per method'
    del named["tuning_free"]  # a configuration of m_svgd_em
    for name, (state, info) in named.items():
        init = importlib.import_module(f"marginax.algorithms._{name}")
        kinds = {kind: value for kind, value in vars(init).items() if hasattr(value, "_fields")}
        states = [value._fields for kind, value in kinds.items() if kind.endswith("State")]
        infos = [value._fields for kind, value in kinds.items() if kind.endswith("Info")]
        assert ("theta", "particles", *state) in states, f"docs/notation.md: State of {name}"
        assert tuple(info) in infos, f"docs/notation.md: Info of {name}"


DRAWING = [
    path
    for folder in ("examples", "docs/figures", "benchmarks")
    for path in sorted((ROOT / folder).glob("*.py"))
    if "plt.subplots(" in path.read_text()
]


@pytest.mark.parametrize("path", DRAWING, ids=lambda path: path.name)
def test_figures_of_the_site_have_one_style(path):
    assert re.search(r'"marginax\.interop\.figures"|^style\(\)$', path.read_text(), re.MULTILINE)
