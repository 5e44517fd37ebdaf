"""The commands of `marginax` in a terminal, one function each, with their options."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from marginax._version import __version__
from marginax.cli.about import clear_compiled, what_is_here
from marginax.cli.comparing import comparison_of
from marginax.cli.fit_command import Request, fit_from_files
from marginax.cli.messages import said_plainly
from marginax.cli.starters import KINDS, start

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # --debug shows Python's own tracebacks
    help="Maximum marginal likelihood for latent-variable models with interacting particles.",
)


def show_version(asked: bool) -> bool:
    """Prints the version and ends."""
    if asked:
        typer.echo(f"marginax {__version__}")
        raise typer.Exit
    return asked


@app.callback()
def about(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Maximum marginal likelihood for latent-variable models with interacting particles."""


@app.command("fit", short_help="Fit a model to a table and write a report.")
def fit_command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL.py[:name]",
            help="The model file; a name picks one of its functions. Without one it is problem, "
            "else model, else the only function there.",
        ),
    ],
    data: Annotated[Path, typer.Option(metavar="FILE", help="A table: .csv, .npz or .parquet.")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A further argument of the function; may be repeated.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Gather the rows by this column first: every other column then has shape [groups, "
            "largest group], and there is a column mask, 0 where there is only padding.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for results.  [default: fit-<model name>]"),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="The same seed gives the same result.")
    ] = 0,
    num_starts: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="How many starts of theta, which must agree to be believed."
        ),
    ] = 3,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Keep checkpoints in DIR/checkpoint, and go on from those there."
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Fit a model to a table by maximum marginal likelihood, and write a report.

    MODEL.py defines problem(data), which makes a marginax.Problem of a dict of columns, or a
    NumPyro model whose arguments are named after columns. `marginax new` writes one to start from.

    Everything is computed in float64. DIR gets summary.json, fit.npz, posterior.nc, figure.png and
    report.html. Ctrl-C ends a stage early, and results are still written, as soon as the likelihood
    has been climbed from one start.

    Exit codes: 0 nothing to warn of, 3 warnings (results are written), 2 bad input, 1 the machine
    (a full disk, a missing package), 130 Ctrl-C before there was a result.
    """
    kept = "The checkpoints are kept; the same command goes on from there." if resume else ""
    with said_plainly(debug, f"There is no result, and none was written. {kept}".strip()):
        code = fit_from_files(
            Request(
                model=model,
                data=data,
                settings=settings or [],
                group=group,
                out=out,
                seed=seed,
                num_starts=num_starts,
                resume=resume,
            )
        )
    raise typer.Exit(code)


@app.command("mixed", short_help="Fit a mixed model that a formula describes.")
def mixed_command(
    formula: Annotated[
        str, typer.Argument(metavar="FORMULA", help='Such as "y ~ x + (x | g)", in quotes.')
    ],
    data: Annotated[Path, typer.Option(metavar="FILE", help="A table: .csv or .parquet.")],
    family: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="gaussian, binomial, poisson, negative_binomial, gamma, beta, ordinal or student.",
        ),
    ] = "gaussian",
    link: Annotated[
        str | None, typer.Option(metavar="NAME", help="logit, probit or cloglog.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Weights; of proportions, the trials.")
    ] = None,
    reml: Annotated[
        bool, typer.Option("--reml", help="Restricted maximum likelihood (gaussian).")
    ] = False,
    zero_inflation: Annotated[
        bool, typer.Option("--zero-inflation", help="A probability of extra zeros (counts).")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for results; without it they are only printed."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Fit a mixed model by maximum likelihood, and print what lme4 would.

    With --out, DIR gets summary.json, random_effects.csv, figure.png and report.html. Rows with
    gaps are left out, with a note. Exit codes are those of `marginax fit`.
    """
    with said_plainly(debug, "There is no result, and none was written."):
        # Only here: other commands need no table library.
        from marginax.cli.mixed_command import MixedRequest, mixed_from_file

        code = mixed_from_file(
            MixedRequest(formula, data, family, link, weights, reml, zero_inflation, out)
        )
    raise typer.Exit(code)


@app.command(short_help="Compare two fits of the same data.")
def compare(
    first: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of results.")],
    second: Annotated[Path, typer.Argument(metavar="DIR", help="Another one.")],
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Compare two fits of the same data: AIC, BIC and a likelihood-ratio test.

    A folder is what `marginax fit` or `marginax mixed --out` wrote.
    """
    with said_plainly(debug):
        typer.echo(comparison_of(first, second))


@app.command(short_help="Write a model file to start from, with data.")
def new(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="|".join(KINDS),
            help="Linear mixed model, binomial mixed model, item response (2PL), pharmacokinetics "
            "or one factor.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.py", help="The model's file.  [default: <kind>.py]"),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Write a commented model file to start from, and simulated data beside it.

    Nothing is overwritten.
    """
    with said_plainly(debug):
        model, data = start(kind, out)
        typer.echo(f"Wrote {model} and {data}. Fit them with\n")
        typer.echo(f"    marginax fit {model} --data {data}\n")


@app.command(short_help="Show versions, extras and devices.")
def info(
    clear_cache: Annotated[
        bool, typer.Option("--clear-cache", help="Remove the compiled programs that are kept.")
    ] = False,
) -> None:
    """Show versions, extras (installed or not), devices, compiled programs, the width of floats."""
    console = Console(highlight=False, markup=False)
    console.print(clear_compiled() if clear_cache else what_is_here())


@app.command(short_help="Run the M-SVGD-EM paper's experiments anew.")
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
        # Only here: it takes longer to import than all the rest.
        from marginax.reproduction import render as draw
        from marginax.reproduction import reproduce as compute

        size = None
        if render is None:
            size = "quick" if quick else "full" if full else "standard"
            out = compute(experiment, size=size, out=out, device=device)
            if no_render:
                typer.echo(f"Results: {out / 'results'} (draw them with --render {out})")
                return
        typer.echo("Drawing ...")
        typer.echo(f"Report: {draw(render or out, size)}")
