"""The reference of the shell, docs/api/cli.md, from the code: `python docs/command_table.py`."""

import re
from pathlib import Path

import typer

from marginax.cli.app import app

PAGE = Path(__file__).parent / "api" / "cli.md"
BEGIN, END = "<!-- made by docs/command_table.py -->\n", "<!-- end of the commands -->"


def option(parameter) -> str:
    """A row: how it is given, and what it is for."""
    names = [*parameter.opts, *parameter.secondary_opts]
    is_argument = parameter.param_type_name == "argument"
    given = parameter.name.upper() if is_argument else ", ".join(names)
    words = " ".join((parameter.help or "").split()).replace("|", r"\|").replace("<", "&lt;")
    return f"| `{given}` | {words} |"


def commands() -> str:
    """All commands, in the order of `marginax --help`."""
    parts = []
    for name, command in typer.main.get_command(app).commands.items():
        words = "\n\n".join(
            " ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n")
        )
        pieces = re.split(r"(`[^`]*`)", words)  # an option outside of code would get a dash
        words = "".join(re.sub(r"(--[\w-]+)", r"`\1`", p) if p[:1] != "`" else p for p in pieces)
        parts += [f"## `marginax {name}`", words]
        rows = [option(one) for one in command.params if one.name != "help"]
        if rows:
            parts.append("\n".join(["| argument or option | |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def written(page: str) -> str:
    """The page with the commands as they should be."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + "\n" + commands() + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
