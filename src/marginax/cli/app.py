"""The commands of the shell, one function each, and how their errors are said."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from marginax import paper
from marginax._version import __version__

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Maximum marginal likelihood for latent-variable models with interacting particles.",
)
errors = Console(stderr=True, highlight=False, soft_wrap=True)


@contextmanager
def said_plainly(debug: bool) -> Iterator[None]:
    """A line for a traceback: exit code 2 for bad input, 1 for the machine, 130 for Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        errors.print(
            "\nInterrupted. What is finished is kept; the same command goes on from there."
        )
        raise typer.Exit(130) from None
    except (ValueError, OSError, ImportError) as error:
        if debug:
            raise
        sentence = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        errors.print(f"Error: {sentence}", markup=False)
        raise typer.Exit(2 if isinstance(error, ValueError) else 1) from None


def show_version(asked: bool) -> bool:
    """Prints the version and ends."""
    if asked:
        typer.echo(f"marginax {__version__}")
        raise typer.Exit
    return asked


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Maximum marginal likelihood for latent-variable models with interacting particles."""


@app.command()
def reproduce(
    experiment: Annotated[str, typer.Argument(help="toy, logistic, network or all.")] = "all",
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer trials and steps: minutes on a laptop.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="The paper's numbers of trials; better on a GPU.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for results, figures and report.")] = Path(
        "out"
    ),
    device: Annotated[
        str | None, typer.Option(help="cpu or gpu; JAX's choice if left out.")
    ] = None,
    no_render: Annotated[
        bool, typer.Option("--no-render", help="Compute only; needs no plotting library.")
    ] = False,
    render: Annotated[
        Path | None,
        typer.Option("--render", metavar="DIR", help="Compute nothing; draw what DIR holds."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Run the M-SVGD-EM paper's experiments anew and write a report beside its claims.

    Finished experiments are kept in OUT/results and not run again.
    """
    with said_plainly(debug):
        if quick and full:
            raise ValueError("--quick and --full exclude each other. Choose one, or neither.")
        size = None
        if render is None:
            size = "quick" if quick else "full" if full else "standard"
            out = paper.reproduce(experiment, size=size, out=out, device=device)
            if no_render:
                typer.echo(f"Results: {out / 'results'} (draw them with --render {out})")
                return
        typer.echo("Drawing ...")
        typer.echo(f"Report: {paper.render(render or out, size)}")
