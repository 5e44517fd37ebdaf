"""Imports go one way through the layers, and every module is in one of them."""

import ast
import re
from pathlib import Path

import pytest

import marginax

ROOT = Path(marginax.__file__).parent
# Lower layers first. A module may import from layers below, and within its own line where that says
# so.
LAYERS = [
    ["_version", "base", "memory", "processes", "programs", "small_linalg"],
    ["checks", "_tree", "fingerprints"],
    ["minibatch"],
    ["pieces"],
    ["scores", "stein", "langevin", "momentum", "ascent", "partition"],
    ["kernels", "metrics", "em_gradient"],
    ["diagnostics"],
    ["algorithms"],
    [
        "trajectory",
        "local",
        "run_checks",
        "stopping",
        "progress",
        "interrupts",
        "checkpoint",
        "result",
    ],
    ["block"],
    ["lanes", "sharding"],
    ["divergence"],
    ["loop"],
    ["run"],
    ["bijections", "groups", "leaves"],
    ["constraints"],
    ["problem"],
    ["natural", "twins"],
    ["inference"],
    ["latents", "comparison", "predictive", "method_choice", "summary", "saved", "fit_checks"],
    ["plotting", "interop", "many_groups"],
    ["estimate"],
    ["stages"],
    ["fit"],
    ["models"],
    ["paper"],
    ["cli"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
MODULES = sorted(p.relative_to(ROOT).with_suffix("").parts for p in ROOT.rglob("*.py"))


def imported(parts):
    """The marginax modules that this one imports, as tuples of names."""
    tree = ast.parse(ROOT.joinpath(*parts).with_suffix(".py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("marginax"):
            inside = tuple(node.module.split(".")[1:])
            for alias in node.names:
                yield inside or (alias.name,)
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("marginax") for alias in node.names)


@pytest.mark.parametrize("parts", MODULES, ids=".".join)
def test_imports_go_down(parts):
    if parts == ("__init__",):
        return  # the front door may open every room
    layer = LEVEL[parts[0]]
    for target in imported(parts):
        if target[0] == parts[0]:
            continue
        below = LEVEL[target[0]] < layer
        assert below, f"{'.'.join(parts)} imports {'.'.join(target)}, which is not below it"


def test_models_build_on_nothing_but_the_words():
    for parts in MODULES:
        if parts[0] == "models":
            assert {t[0] for t in imported(parts)} <= {"base", "models"}
        elif parts != ("__init__",) and parts[0] not in ("paper", "cli"):
            assert "models" not in {t[0] for t in imported(parts)}


def test_algorithms_borrow_states_and_infos_only():
    for parts in MODULES:
        if parts[0] != "algorithms" or parts[1] == "__init__":
            continue
        tree = ast.parse(ROOT.joinpath(*parts).with_suffix(".py").read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "marginax.algorithms"
            ):
                assert all(alias.name.endswith(("State", "Info")) for alias in node.names)


def test_the_design_page_names_every_module():
    page = (Path(__file__).parents[1] / "docs" / "design.md").read_text()
    named = set(re.findall(r"`([\w/]+)`", page))
    for *folders, last in MODULES:
        name = f"{folders[-1]}/" if folders and last == "__init__" else last
        assert name in named | {"__init__"}, f"docs/design.md does not say what {name} is for"
