"""Draws the first page's figure: `python docs/figures/first.py`.

Writes docs/_static/first.png for the README, and its two panels as first_estimate.png and
first_cloud.png, which stand below each other on a telephone.
"""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from toy import (
    BLACK,
    BLUE,
    GREEN,
    SKY,
    STATIC,
    VERMILION,
    draw_posterior,
    follow,
    methods,
    model,
    style,
    y,
)

STEPS = 1000
EXACT = float(jnp.mean(y))
LINES = dict(
    zip(methods, ((BLACK, "-"), (VERMILION, "--"), (BLUE, "-."), (GREEN, "-")), strict=True)
)

CLOUDS = (
    ("M-SVGD-EM, momentum 0.9", "one kernel for all", SKY, "v", BLACK),
    ("nothing tuned", "a kernel per block", GREEN, "o", GREEN),
)


def draw_estimates(ax, ends) -> None:
    """theta against the step, beside the exact estimate."""
    for name, (colour, dash) in LINES.items():
        path = np.concatenate([[0.0], np.asarray(ends[name].history)])
        steps = np.arange(1, STEPS + 2)
        ax.semilogx(steps, path, color=colour, linestyle=dash, linewidth=2.2, label=name)
    ax.axhline(EXACT, color="grey", linestyle=":", linewidth=1.5)
    ax.annotate("exact estimate", (1.1, EXACT), (0, 4), textcoords="offset points", color="#555555")
    ax.set(xlabel="step", ylabel="θ", title="The estimate", xlim=(1, STEPS), ylim=(-6.2, 13.2))
    ax.set_yticks((0, 5, 10))
    ax.legend(loc="lower right", fontsize=11)


def draw_clouds(ax, ends) -> None:
    """Two latents of two clouds, over the exact posterior."""
    draw_posterior(ax, EXACT)
    for name, words, colour, mark, edge in CLOUDS:
        x = np.asarray(ends[name].particles)
        held = float(x.var(axis=0).mean()) / float(model.posterior_variance)
        label = f"{words}: {100 * held:.0f} % of the variance"
        ax.scatter(
            *x[:, :2].T,
            s=46,
            marker=mark,
            color=colour,
            edgecolors=edge,
            linewidths=0.8,
            label=label,
        )
    ax.set(
        xlabel="first latent", ylabel="second latent", title="The cloud over the exact posterior"
    )
    ax.set_xticks((5, 10, 15))
    ax.set_ylim(top=ax.get_ylim()[1] + 2.5)
    ax.legend(loc="upper left", fontsize=11, borderpad=0.1)


style()
ends = {name: follow(name, STEPS) for name in methods}
size = {"figsize": (10.5, 4.4), "width_ratios": (1.35, 1)}
figure, (left, right) = plt.subplots(1, 2, layout="constrained", **size)
draw_estimates(left, ends)
draw_clouds(right, ends)
figure.savefig(STATIC / "first.png")
for name, draw in (("first_estimate", draw_estimates), ("first_cloud", draw_clouds)):
    figure, ax = plt.subplots(figsize=(5.2, 4.4), layout="constrained")
    draw(ax, ends)
    figure.savefig(STATIC / f"{name}.png")
print({name: f"{float(end.theta):.4f}" for name, end in ends.items()}, f"exact {EXACT:.4f}")
