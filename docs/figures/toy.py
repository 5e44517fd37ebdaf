"""What the figures of the site share: the toy model of the README, its methods, and how to draw."""

from pathlib import Path

import jax
import matplotlib as mpl
import matplotlib.style
import numpy as np
from matplotlib.patches import Ellipse

import marginax as mx

STATIC = Path(__file__).parents[1] / "_static"
# Okabe and Ito's colours, which colour-blind readers can tell apart.
BLACK, BLUE, VERMILION, GREEN, SKY = "#000000", "#0072B2", "#D55E00", "#009E73", "#56B4E9"

# The README's model, data and start.
model = mx.models.ToyHierarchical(prior_variance=12.0, noise_variance=12.0)
y = model.simulate(jax.random.key(1), 10.0, 20)
start = jax.random.normal(jax.random.key(2), (20, 20))

joint = mx.kernels.rbf(5.0)
restart = mx.momentum.adaptive_restart()

methods = {
    "SVGD-EM": mx.svgd_em(model.log_joint, 0.3, 0.3, joint),
    "M-SVGD-EM, momentum 0.9": mx.m_svgd_em(model.log_joint, 0.3, 0.3, joint),
    "M-SVGD-EM, adaptive restart": mx.m_svgd_em(
        model.log_joint, 0.3, 0.3, joint, theta_momentum=restart, particle_momentum=restart
    ),
    "nothing tuned": mx.tuning_free(model.log_joint, blocks="leading"),
}


def follow(name: str, num_steps: int) -> mx.Trajectory:
    """This many steps of one of `methods`, from the README's start."""
    return mx.trajectory(methods[name], 0.0, start, y, num_steps, key=jax.random.key(3))


def draw_posterior(ax, theta, coordinates=(0, 1)) -> None:
    """Ellipses that hold 50 % and 95 % of the exact posterior of two coordinates."""
    centre = np.asarray(model.posterior_mean(theta, y))[list(coordinates)]
    sd = float(model.posterior_variance) ** 0.5
    for share, style in ((0.5, "-"), (0.95, "--")):
        width = 2 * sd * np.sqrt(-2 * np.log(1 - share))
        ax.add_patch(
            Ellipse(centre, width, width, fill=False, color=BLACK, linestyle=style, linewidth=1.2)
        )
    reach = 3.1 * sd
    ax.set(xlim=(centre[0] - reach, centre[0] + reach), ylim=(centre[1] - reach, centre[1] + reach))
    ax.set_aspect("equal")


def style() -> None:
    """That of all figures, with letters large enough to read on a telephone."""
    mpl.use("Agg")
    mpl.style.use("marginax.interop.figures")
    sizes = ("axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize")
    mpl.rcParams.update({"font.size": 12, "savefig.dpi": 110, **dict.fromkeys(sizes, 12)})
