"""What a release says of itself: one version, and a CHANGELOG that old users can follow."""

import inspect
import re
import tomllib
from pathlib import Path

import typer

import marginax as mx
from marginax.cli.app import app

REPOSITORY = Path(__file__).parents[2]
CHANGELOG = (REPOSITORY / "CHANGELOG.md").read_text()
# Names of 0.1.0 that users could write: functions, `function(argument)`, `Class.field`, options.
NAMES = (REPOSITORY / "tests" / "data" / "names_0_1_0.txt").read_text().split("\n")[:-1]


def sections():
    """The text of every release by its version, the newest first."""
    parts = re.split(r"^## ", CHANGELOG, flags=re.MULTILINE)[1:]
    return {re.split(r"[\s]", part, maxsplit=1)[0]: part for part in parts}


def test_one_version():
    citation = (REPOSITORY / "CITATION.cff").read_text()
    newest = next(version for version in sections() if version != "Unreleased")
    assert newest == mx.__version__
    assert f"\nversion: {newest}\n" in citation
    date = re.search(r"^date-released: (\S+)$", citation, re.MULTILINE).group(1)
    assert f"## {newest} - {date}\n" in CHANGELOG


def test_every_release_has_its_date():
    for line in re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE):
        assert line == "Unreleased" or re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", line)


def is_there(name):
    """Whether users can still write it."""
    if name.startswith("marginax "):
        _, command, option = name.split()
        commands = typer.main.get_command(app).commands
        parameters = commands[command].params if command in commands else []
        return any(option in parameter.opts for parameter in parameters)
    path, _, argument = name.rstrip(")").partition("(")
    found = mx
    for part in path.split("."):
        fields = getattr(found, "__dataclass_fields__", {})
        if part in fields and not argument:
            return True
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return not argument or argument in inspect.signature(found).parameters


def test_names_that_are_gone_are_in_the_changelog():
    """Whoever used 0.1.0 finds every name that fails by searching for it."""
    gone = [name for name in NAMES if not is_there(name)]
    assert 50 < len(gone) < len(NAMES) / 2, "the list is read, and most names are still there"
    words = {
        re.split(r"[.(\s]", name.rstrip(")"))[-1] for name in gone if not is_within(name, gone)
    }
    code = " ".join(re.findall(r"`[^`]+`", sections()["0.2.0"]))
    missing = [word for word in words if not re.search(rf"(?<![\w-]){word}(?!\w)", code)]
    assert not missing, "the CHANGELOG does not say what became of these"


def is_within(name, gone):
    """Whether what it belongs to is gone as a whole: a function, or the module of transforms."""
    return name.split("(")[0] in gone and "(" in name or name.startswith("bijections.")


def test_the_extra_all_has_all_of_them():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - {"all", "test", "docs", "lint", "dev"}
    everything = project["optional-dependencies"]["all"][0]
    assert set(re.search(r"\[(.*)\]", everything).group(1).split(",")) == extras


def test_the_release_is_tried_with_every_extra_and_python():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - {"test", "docs", "lint", "dev"}
    words = (REPOSITORY / ".github" / "workflows" / "release.yml").read_text()
    tried = re.search(r"extra: \[(.*)\]", words).group(1).split(", ")
    assert set(tried) == extras | {"none"}
    versions = re.search(r"python: \[(.*)\]", words).group(1).replace('"', "").split(", ")
    prefix = "Programming Language :: Python :: 3."
    known = [one.rpartition(" ")[2] for one in project["classifiers"] if one.startswith(prefix)]
    assert versions == known
    assert (
        f"python: [{', '.join(f'{chr(34)}{one}{chr(34)}' for one in known)}]"
        in (REPOSITORY / ".github" / "workflows" / "tests.yml").read_text()
    )
    for extra in extras - {"all"}:
        assert f"def try_{extra}(" in (REPOSITORY / "tests/support/try_extras.py").read_text()
