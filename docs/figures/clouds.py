"""Draws a healthy cloud and a collapsed one over the exact posterior of the toy model.

`python docs/figures/clouds.py` writes docs/_static/cloud_healthy.png and cloud_collapsed.png, and
prints what `diagnostics.check` says of each.
"""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm
from toy import GREEN, STATIC, VERMILION, draw_posterior, follow, methods, model, style, y

import marginax as mx

CLOUDS = {
    "healthy": ("nothing tuned", GREEN, "o"),
    "collapsed": ("M-SVGD-EM, momentum 0.9", VERMILION, "v"),
}

style()
for word, (name, colour, mark) in CLOUDS.items():
    end = follow(name, 1000)
    x = np.asarray(end.particles)
    checked = mx.diagnostics.check(
        model.log_joint, end.theta, end.particles, y, blocks=methods[name].blocks
    )
    ratios = mx.diagnostics.stein_ratio(model.log_joint, end.theta, end.particles, y)
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.6, 3.3), layout="constrained")

    draw_posterior(left, end.theta)
    left.scatter(*x[:, :2].T, s=30, marker=mark, color=colour)
    left.set(xlabel="first latent", ylabel="second latent", title="Two of 20 latents")
    left.set_xticks((5, 10, 15))

    # All latents, in posterior standard deviations from the posterior mean.
    centre = np.asarray(model.posterior_mean(end.theta, y))
    z = ((x - centre) / float(model.posterior_variance) ** 0.5).ravel()
    grid = np.linspace(-3.5, 3.5, 200)
    right.ecdf(z, color=colour, linewidth=2.4, label="cloud")
    right.plot(grid, norm.cdf(grid), color="black", linestyle="--", label="posterior")
    right.legend(loc="upper left")
    low, high = float(jnp.min(ratios)), float(jnp.max(ratios))
    right.set(
        xlabel="posterior standard deviations",
        title=f"Stein ratio {low:.2f} to {high:.2f}",
        ylabel="share below",
        xlim=(-3.5, 3.5),
    )
    figure.savefig(STATIC / f"cloud_{word}.png")
    print(f"{word}: {checked}")
