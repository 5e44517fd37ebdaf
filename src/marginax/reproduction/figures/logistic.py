"""Figures of the logistic regression."""

from functools import partial

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import gaussian_kde

from marginax.reproduction.columns import PUBLISHED, WRITTEN, stein_name
from marginax.reproduction.figures.style import (
    Drawing,
    Results,
    heat_map,
    line_style,
    panels,
    short_name,
)

__all__ = ["LOGISTIC_DRAWINGS"]

MARGINAX = "marginax / default"


def draw_paths(results: Results, prior_variance: float) -> Figure:
    """theta of all methods, with the exact estimate and the joint mode as lines."""
    measured = results["logistic_methods"]
    steps = np.array(measured["theta"].coords["step"])
    exact, mode = (
        measured[name].at(prior_variance=prior_variance) for name in ("exact", "joint_mode")
    )
    figure, axes = panels(2, 2, height=3.3, sharey=True)
    for i, kernel in enumerate(("RBF", "median")):
        for j, column in enumerate((PUBLISHED, WRITTEN)):
            ax = axes[i, j]
            labels = [f"{column} / {stein_name(a)} / {kernel}" for a in (0.0, 0.3, 0.5, 0.9)]
            labels += [f"{WRITTEN} / PGD", f"{column} / MPGD", f"{column} / SOUL"]
            labels += [MARGINAX] if column == WRITTEN else []
            for label in labels:
                path = measured["theta"].at(method=label, prior_variance=prior_variance)
                ax.plot(steps, path, label=short_name(label), **line_style(label))
            ax.axhline(exact, color="black", linestyle=":", linewidth=1.2)
            ax.axhline(mode, color="black", linestyle=(0, (1, 4)), linewidth=1.2)
            for height, words in ((exact, "exact"), (mode, "joint mode")):
                place = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 7}
                ax.annotate(words, (1.01, height), annotation_clip=False, **place)
            ax.set_xlim(0, steps[-1])
            ax.set(xlabel="step", ylabel="θ", ylim=(0.4, 1.2), title=f"{column}, {kernel} kernel")
    axes[0, 0].legend(frameon=False, fontsize=7.5, ncols=2)
    axes[0, 1].legend(frameon=False, fontsize=7.5, ncols=2)
    return figure


def draw_densities(results: Results, prior_variance: float) -> Figure:
    """Kernel density estimates of the first four weights beside the exact posterior."""
    measured = results["logistic_methods"]
    shown = {
        "as published, 0.9": (f"{PUBLISHED} / M-SVGD-EM(0.9) / RBF", "#000000", "--"),
        "as written, 0.9": (f"{WRITTEN} / M-SVGD-EM(0.9) / RBF", "#D55E00", "-"),
        "as written, 0.9, median": (f"{WRITTEN} / M-SVGD-EM(0.9) / median", "#0072B2", "-."),
        "PGD": (f"{WRITTEN} / PGD", "#7F7F7F", "--"),
        "marginax": (MARGINAX, "#009E73", "-"),
    }
    figure, axes = panels(2, 2, height=2.8)
    draws = measured["posterior_draws"].at(prior_variance=prior_variance)
    for weight, ax in enumerate(axes.flat):
        x = draws[:, weight]
        grid = np.linspace(x.mean() - 4.5 * x.std(), x.mean() + 4.5 * x.std(), 201)
        density = gaussian_kde(x)(grid)
        ax.fill_between(grid, density, color="#BBBBBB", label="exact posterior")
        for name, (label, colour, dash) in shown.items():
            cloud = measured["particles"].at(method=label, prior_variance=prior_variance)[:, weight]
            ax.plot(grid, gaussian_kde(cloud)(grid), color=colour, linestyle=dash, label=name)
        ax.set(ylim=(0, 2.8 * density.max()), yticks=[], xlabel=f"weight {weight + 1}")
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure


def draw_test_error(results: Results, prior_variance: float) -> Figure:
    """Test error over momentum and step, at the step size 1e-5."""
    measured = results["logistic_test_error"]["error"]
    momenta, steps = measured.coords["momentum"], measured.coords["step"]
    figure, axes = panels(2, 2, height=2.6)
    for i, kernel in enumerate(("RBF", "median")):
        for j, column in enumerate((PUBLISHED, WRITTEN)):
            label = f"{column} / M-SVGD-EM / {kernel}"
            image = heat_map(
                axes[i, j],
                100 * measured.at(method=label, prior_variance=prior_variance),
                momenta,
                steps,
                low=0.0,
                high=50.0,
                form=".1f",
                title=f"{column}, {kernel} kernel",
                xlabel="step",
                ylabel="momentum α",
            )
    figure.colorbar(image, ax=axes, label="test error in %", shrink=0.8)
    return figure


def draw_learning_rates(results: Results, prior_variance: float) -> Figure:
    """Test error after the last step against the step size, a panel per number of particles."""
    measured = results["logistic_learning_rates"]["error"]
    shown = {
        f"{WRITTEN} / SVGD-EM / RBF": ("SVGD-EM, RBF", "#000000", "-"),
        f"{WRITTEN} / M-SVGD-EM(0.9) / RBF": ("M-SVGD-EM(0.9), RBF", "#D55E00", "-"),
        f"{WRITTEN} / SVGD-EM / median": ("SVGD-EM, median", "#56B4E9", "--"),
        f"{WRITTEN} / M-SVGD-EM(0.9) / median": ("M-SVGD-EM(0.9), median", "#0072B2", "--"),
        f"{PUBLISHED} / SVGD-EM / RBF": ("SVGD-EM, as published", "#7F7F7F", "-."),
        f"{PUBLISHED} / M-SVGD-EM(0.9) / RBF": ("M-SVGD-EM(0.9), as published", "#CC79A7", "-."),
        f"{WRITTEN} / PGD": ("PGD", "#E69F00", ":"),
    }
    clouds = measured.coords["num_particles"]
    gammas = np.array(measured.coords["step_size"])
    figure, axes = panels(1, len(clouds), height=3.9, sharey=True)
    for ax, num_particles in zip(axes[0], clouds, strict=True):
        for label, (name, colour, dash) in shown.items():
            error = measured.at(
                method=label, prior_variance=prior_variance, num_particles=num_particles
            )
            ax.semilogx(gammas, 100 * error, color=colour, linestyle=dash, label=name)
        ax.set(xlabel="step size γ", title=f"N = {num_particles}", ylim=(0, 65))
    axes[0, 0].set_ylabel("test error in %")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=8,
    )
    return figure


def draw_mpgd(results: Results) -> Figure:
    """Iterations of MPGD over friction and momentum, both priors."""
    measured = results["logistic_mpgd_tuning"]["iterations"]
    never = 1000.0
    figure, axes = panels(2, 2, height=2.9)
    for i, variance in enumerate(measured.coords["prior_variance"]):
        for j, column in enumerate((PUBLISHED, WRITTEN)):
            image = heat_map(
                axes[i, j],
                measured.at(method=f"{column} / MPGD", prior_variance=variance).T,
                measured.coords["momentum"],
                measured.coords["friction"],
                low=0.0,
                high=never,
                never=never,
                form=".0f",
                title=f"{column}, prior variance {variance:g}",
                xlabel="friction ε",
                ylabel="momentum μ",
            )
    figure.colorbar(image, ax=axes, label="mean iterations (– : never)", shrink=0.8)
    return figure


LOGISTIC_DRAWINGS = (
    Drawing(
        "figure_09_logistic_paths", ("logistic_methods",), partial(draw_paths, prior_variance=25.0)
    ),
    Drawing(
        "figure_10_logistic_paths_text",
        ("logistic_methods",),
        partial(draw_paths, prior_variance=5.0),
    ),
    Drawing(
        "figure_11_logistic_densities",
        ("logistic_methods",),
        partial(draw_densities, prior_variance=25.0),
    ),
    Drawing(
        "figure_12_logistic_test_error",
        ("logistic_test_error",),
        partial(draw_test_error, prior_variance=25.0),
    ),
    Drawing(
        "figure_13_logistic_test_error_text",
        ("logistic_test_error",),
        partial(draw_test_error, prior_variance=5.0),
    ),
    Drawing(
        "figure_14_logistic_learning_rates",
        ("logistic_learning_rates",),
        partial(draw_learning_rates, prior_variance=25.0),
    ),
    Drawing(
        "figure_15_logistic_learning_rates_text",
        ("logistic_learning_rates",),
        partial(draw_learning_rates, prior_variance=5.0),
    ),
    Drawing("figure_16_logistic_mpgd", ("logistic_mpgd_tuning",), draw_mpgd),
)
