"""The shape of the package: few rooms, imports that go down, names that are not taken twice."""

import ast
import re
from pathlib import Path

import pytest

import marginax

ROOT = Path(marginax.__file__).parent
REPOSITORY = Path(__file__).parents[2]
# Lower layers first: a module may import from layers below, and from its own folder.
LAYERS = [
    ["_version", "typing", "errors"],
    ["_core"],
    ["model"],
    ["kernels"],
    ["flows"],
    ["algorithms", "diagnostics"],
    ["running"],
    ["likelihood"],
    ["interop", "models"],
    ["fitting", "reproduction"],
    ["formulas"],
    ["cli"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
MODULES = sorted(p.relative_to(ROOT).with_suffix("").parts for p in ROOT.rglob("*.py"))
TREES = {
    parts: ast.parse(ROOT.joinpath(*parts).with_suffix(".py").read_text()) for parts in MODULES
}
# Folders of tests that mirror no folder of the package: of the repository itself, and helpers.
NOT_MIRRORED = {"project", "support", "data", "hard"}


def imported(tree):
    """The marginax modules that a file imports, wherever in it, as tuples of names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            if (node.module or "").split(".")[0] == "marginax":
                inside = tuple(node.module.split(".")[1:])
                for alias in node.names:
                    yield (*inside, alias.name) if (*inside, alias.name) in FILES else inside
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("marginax.") for alias in node.names)


FILES = set(MODULES) | {parts[:-1] for parts in MODULES if parts[-1] == "__init__"}


def module_of(target):
    """The file that an import means: a module, or the __init__ of a folder."""
    return target if target in TREES else (*target, "__init__")


def test_few_rooms():
    modules = [parts for parts in MODULES if len(parts) == 1]
    folders = {parts[0] for parts in MODULES if len(parts) > 1}
    assert len(modules) <= 6
    assert len(folders) <= 14
    assert len(LAYERS) <= 12
    assert folders | {parts[0] for parts in modules} == LEVEL.keys() | {"__init__"}


@pytest.mark.parametrize("parts", MODULES, ids=".".join)
def test_imports_go_down(parts):
    if parts == ("__init__",):
        return  # the front door may open every room
    for target in imported(TREES[parts]):
        assert target, f"{'.'.join(parts)} imports from the package's root"
        below = target[0] == parts[0] or LEVEL[target[0]] < LEVEL[parts[0]]
        assert below, f"{'.'.join(parts)} imports {'.'.join(target)}, which is not below it"


def test_no_cycles():
    graph = {
        parts: {module_of(target) for target in imported(tree) if target} - {parts}
        for parts, tree in TREES.items()
        if parts[-1] != "__init__"  # a folder's __init__ lists what is in it
    }
    done = set()

    def visit(module, path):
        assert module not in path, f"a cycle: {' -> '.join('.'.join(m) for m in (*path, module))}"
        if module in done or module not in graph:
            return
        for target in graph[module]:
            visit(target, (*path, module))
        done.add(module)

    for module in graph:
        visit(module, ())


def public_functions():
    """Names that users call, of the package and of its public modules."""
    public = [marginax, *(getattr(marginax, name) for name in marginax.__all__)]
    modules = [one for one in public if type(one) is type(marginax)]
    return {
        name
        for module in modules
        for name in module.__all__
        if callable(getattr(module, name)) and not isinstance(getattr(module, name), type)
    }


def test_dir_shows_what_users_need_and_nothing_else():
    # Completion listed `_core`, `fitting`, `running` and other folders.
    assert dir(marginax) == sorted(marginax.__all__)
    assert marginax.errors.RunError is marginax.RunError  # hidden, and still there


def test_no_module_has_the_name_of_a_public_function():
    # `marginax.fit` was the function or the module, whichever was imported last.
    functions = public_functions()
    assert {"fit", "run", "trajectory", "em_gradient", "rbf", "stein_ratio"} <= functions
    assert not [".".join(parts) for parts in MODULES if parts[-1] in functions]


def test_no_name_of_a_folder_is_shadowed():
    for parts, tree in TREES.items():
        if parts[-1] == "__init__" and len(parts) > 1:
            inside = {other[-1] for other in MODULES if other[:-1] == parts[:-1]}
            names = {
                alias.asname or alias.name
                for node in tree.body
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
            }
            assert not names & inside, f"{'.'.join(parts)} hides the modules {names & inside}"


def test_models_build_on_nothing_but_the_words():
    for parts, tree in TREES.items():
        targets = {target[0] for target in imported(tree) if target}
        if parts[0] == "models":
            assert targets <= {"typing", "models"}
        elif parts != ("__init__",) and parts[0] not in ("reproduction", "cli"):
            assert "models" not in targets


def test_the_paper_is_imported_by_its_command_alone():
    for parts, tree in TREES.items():
        if parts[0] == "reproduction" or parts == ("cli", "app"):
            continue
        assert "reproduction" not in {target[0] for target in imported(tree) if target}
    outside = [node for node in TREES[("cli", "app")].body if isinstance(node, ast.ImportFrom)]
    assert not [node for node in outside if "reproduction" in ast.unparse(node)]


def test_algorithms_borrow_states_and_infos_only():
    for parts, tree in TREES.items():
        # The tuning-free configuration is another algorithm with its arguments chosen.
        if parts[0] != "algorithms" or parts[1] in ("__init__", "_tuning_free"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("marginax.algorithms._"):
                assert all(alias.name.endswith(("State", "Info")) for alias in node.names)


METHODS = [path.stem[1:] for path in sorted((ROOT / "algorithms").glob("_[a-z]*.py"))]


@pytest.mark.parametrize("name", METHODS)
def test_every_algorithm_is_exported_and_held_to_the_contract(name):
    assert name in marginax.algorithms.__all__, "export it in algorithms/__init__.py"
    assert name in marginax.__all__, "export it in marginax/__init__.py"
    held = (REPOSITORY / "tests" / "support" / "every_algorithm.py").read_text()
    # The tuning-free configuration is M-SVGD-EM, which is held to it.
    assert f"mx.{name}(" in held or name == "tuning_free", (
        "add it to tests/support/every_algorithm.py"
    )


def branches(function):
    """1 and one for every way: branches, loops, handlers, conditional expressions, and/or."""
    count = 1
    for node in ast.walk(function):
        if isinstance(
            node, ast.If | ast.For | ast.While | ast.ExceptHandler | ast.IfExp | ast.match_case
        ):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
    return count


def test_no_function_has_more_than_fourteen_ways_through_it():
    functions = [
        (branches(node), f"{'.'.join(parts)}.{node.name}")
        for parts, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]
    assert not [one for one in functions if one[0] > 14]


def test_the_design_page_names_every_module():
    page = (REPOSITORY / "docs" / "design.md").read_text()
    named = set(re.findall(r"`([\w/]+)`", page))
    for *folders, last in MODULES:
        name = f"{folders[-1]}/" if folders and last == "__init__" else last
        assert name in named | {"__init__"}, f"docs/design.md does not say what {name} is for"


def homes():
    """The folder that every name of `marginax` comes from."""
    where = {}
    for node in TREES[("__init__",)].body:
        if isinstance(node, ast.ImportFrom):
            inside = (node.module or "").split(".")[1:]
            where |= {alias.name: (inside or [alias.name])[0] for alias in node.names}
    return where


def folders_used(path):
    """The folders of the package that a test uses, itself or by scripts and helpers it names."""
    tree, where = ast.parse(path.read_text()), homes()
    used = {target[0] for target in imported(tree) if target}
    helpers = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used |= {where.get(node.attr)} if node.value.id in ("mx", "marginax") else set()
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            used |= set(re.findall(r"^marginax\.(\w+)\.", node.value))
            helpers.add(node.value)
        if isinstance(node, ast.ImportFrom):
            helpers.add(f"{node.module}.py")
    scripts = [SUPPORT / name for name in helpers if re.fullmatch(r"\w+\.py", name)]
    return used.union(*(folders_used(script) for script in scripts if script.exists()))


SUPPORT = REPOSITORY / "tests" / "support"
TESTS = sorted((REPOSITORY / "tests").rglob("test_*.py"))


@pytest.mark.parametrize("path", TESTS, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_every_test_is_in_the_folder_of_what_it_tests(path):
    folder = path.relative_to(REPOSITORY / "tests").parts[0]
    assert path.parent.parent.name == "tests"
    if folder in NOT_MIRRORED:
        return
    assert folder in LEVEL
    used = folders_used(path)
    assert folder in used, f"{path.name} uses {sorted(filter(None, used))}, and not {folder}"
