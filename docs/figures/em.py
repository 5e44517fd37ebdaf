"""Draws the figures of docs/m_svgd_em.md: `python docs/figures/em.py`.

Writes docs/_static/em_way_*.png, em_forces_*.png, em_cloud.png and em_momentum.png, and prints the
numbers that the page says.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from toy import BLACK, BLUE, GREEN, SKY, STATIC, VERMILION, draw_posterior, follow, start, style, y
from toy import model as toy

import marginax as mx

PRIOR, NOISE = (
    1.0,
    9.0,
)  # variances of the model with one latent: EM is slow where the noise is large
Y = 10.0


def one(theta, x, data):
    """Log joint of one latent: x ~ N(theta, 1), y ~ N(x, 9)."""
    return -((x - theta) ** 2) / (2 * PRIOR) - (data - x) ** 2 / (2 * NOISE)


def em_path(num_steps: int) -> np.ndarray:
    """theta and the mean of q, after every half step of EM."""
    theta, path = 0.0, [(0.0, 0.0)]
    for _ in range(num_steps):
        mean = (theta / PRIOR + Y / NOISE) / (1 / PRIOR + 1 / NOISE)
        path += [(theta, mean), (mean, mean)]
        theta = mean
    return np.array(path)


def flow_path(method, num_steps: int) -> np.ndarray:
    """theta and the mean of the cloud, after every step of a method of the library."""
    cloud = jax.random.normal(jax.random.key(0), (20,))
    cloud = (cloud - cloud.mean()) * (0.9**0.5 / jnp.std(cloud))  # q has its variance already
    key = jax.random.key(1)
    found = mx.trajectory(
        method, 0.0, cloud, Y, num_steps, key=key, record=lambda s, _: (s.theta, s.particles.mean())
    )
    path = np.stack([np.asarray(one) for one in found.history], axis=1)
    return np.concatenate([[[0.0, 0.0]], path])


def accelerated(log_joint, step, kernel, momentum):
    """M-SVGD-EM with the same step and momentum for theta and the particles."""
    both = {"theta_momentum": momentum, "particle_momentum": momentum}
    return mx.m_svgd_em(log_joint, step, step, kernel, **both)


def within(path: np.ndarray, distance: float = 0.05) -> int:
    """The first step from which theta stays within a distance of the estimate, which is Y."""
    off = np.flatnonzero(np.abs(path[:, 0] - Y) > distance)
    return int(off[-1]) + 1


def staircase() -> None:
    """EM, SVGD-EM and M-SVGD-EM as ways up one hill."""
    kernel = mx.kernels.linear()
    flow = flow_path(mx.svgd_em(one, 0.5, 0.5, kernel), 400)
    fast = flow_path(accelerated(one, 0.5, kernel, 0.9), 400)
    em = em_path(200)
    print("steps until theta stays within 0.05, one latent:")
    print(f"  EM {within(em[::2])}, SVGD-EM {within(flow)}, M-SVGD-EM(0.9) {within(fast)}")
    theta, mean = np.meshgrid(np.linspace(-1, 12.5, 200), np.linspace(-1, 12.5, 200))
    height = -((mean - theta) ** 2) / (2 * PRIOR) - (Y - mean) ** 2 / (2 * NOISE)
    ways = (
        ("em", "EM: two exact steps in turn", em[:41], VERMILION),
        ("flow", "SVGD-EM: two short steps", flow[:41], BLUE),
        ("fast", "M-SVGD-EM: with momentum", fast[:41], GREEN),
    )
    for name, title, path, colour in ways:
        figure, ax = plt.subplots(figsize=(4.0, 4.2), layout="constrained")
        levels = np.arange(0.25, 8, 0.5)
        ax.contour(theta, mean, np.sqrt(-height), levels, colors="#bbbbbb", linewidths=0.9)
        ax.plot(*path.T, color=colour, linewidth=1.8, marker=".", markersize=6)
        ax.plot(Y, Y, "*", color=BLACK, markersize=14)
        ax.set(xlabel="θ", ylabel="mean of q", xlim=(-1, 12.5), ylim=(-1, 12.5))
        ax.set(xticks=(0, 5, 10), yticks=(0, 5, 10))
        ax.set_title(title, fontsize=13)
        ax.set_aspect("equal")
        figure.savefig(STATIC / f"em_way_{name}.png")


def forces() -> None:
    """The two parts of the Stein velocity of a cloud, and what they make of it."""
    x = np.random.default_rng(3).normal(size=(14, 2)) * 0.75 + np.array([-1.6, 0.6])
    h = 1.0
    apart = x[:, None] - x[None]  # x_i - x_j
    k = np.exp(-(apart**2).sum(-1) / (2 * h**2))
    climb = k @ -x / len(x)  # the scores of a standard normal, shared by the kernel
    repel = (k[..., None] * apart).sum(1) / h**2 / len(x)
    ours = mx.kernels.rbf(h).velocity(jnp.asarray(x), jnp.asarray(-x))
    assert np.abs(np.asarray(ours) - climb - repel).max() < 1e-5
    ends = {}
    for name, part in (("climb", 0.0), ("both", 1.0)):
        cloud = x.copy()
        for _ in range(2000):
            apart = cloud[:, None] - cloud[None]
            k = np.exp(-(apart**2).sum(-1) / (2 * h**2))
            cloud = cloud + 0.2 * (k @ -cloud + part * (k[..., None] * apart).sum(1)) / len(x)
        ends[name] = cloud
    size = {"figsize": (4.8, 4.7), "layout": "constrained"}
    figure, ax = plt.subplots(**size)
    arrows = {"angles": "xy", "scale_units": "xy", "scale": 0.7, "width": 0.006}
    ax.quiver(*x.T, *climb.T, color=BLUE, label="scores, shared", **arrows)
    ax.quiver(*x.T, *repel.T, color=VERMILION, label="repulsion", **arrows)
    ax.scatter(*x.T, s=26, color=BLACK, zorder=3)
    finish(ax, "What moves each particle")
    figure.savefig(STATIC / "em_forces_move.png")
    figure, ax = plt.subplots(**size)
    ax.scatter(*ends["climb"].T, s=60, marker="v", color=BLUE, label="scores alone")
    ax.scatter(*ends["both"].T, s=40, color=GREEN, label="scores and repulsion")
    finish(ax, "Where they come to rest")
    figure.savefig(STATIC / "em_forces_rest.png")
    share = ends["both"].var(axis=0).mean()
    print(
        f"two latents, 14 particles: scores alone keep {ends['climb'].var():.1e} of the variance,"
    )
    print(f"  with repulsion {share:.2f}")


def finish(ax, title: str) -> None:
    """Circles that hold 50 % and 95 % of a standard normal in the plane, and all around it."""
    angle = np.linspace(0, 2 * np.pi, 200)
    for share, dash in ((0.5, "-"), (0.95, "--")):
        radius = np.sqrt(-2 * np.log(1 - share))
        ax.plot(radius * np.cos(angle), radius * np.sin(angle), color=BLACK, ls=dash, lw=1.1)
    ax.set(xlim=(-3.6, 3.1), ylim=(-2.9, 3.8), xlabel="first latent", ylabel="second latent")
    ax.set_title(title)
    ax.legend(loc="upper right", fontsize=11)
    ax.set_aspect("equal")


def travel() -> None:
    """One cloud on its way, with theta, and the posterior that theta makes."""
    size = {"figsize": (6.6, 6.8), "sharex": True, "sharey": True}
    figure, axes = plt.subplots(2, 2, layout="constrained", **size)
    for ax, num_steps in zip(axes.flat, (0, 2, 6, 40), strict=True):
        end = follow("nothing tuned", max(num_steps, 1))
        theta = float(end.theta) if num_steps else 0.0
        cloud = np.asarray(end.particles if num_steps else start)
        draw_posterior(ax, theta)
        ax.scatter(*cloud[:, :2].T, s=26, color=GREEN)
        ax.set(xlim=(-6, 19), ylim=(-6, 19), title=f"step {num_steps}: θ = {theta:.2f}")
    for ax in axes[1]:
        ax.set_xlabel("first latent")
    for ax in axes[:, 0]:
        ax.set_ylabel("second latent")
    figure.savefig(STATIC / "em_cloud.png")


def errors() -> None:
    """The distance of theta to the estimate against the step, toy model of 20 latents."""
    kernel, exact = mx.kernels.rbf(5.0), float(jnp.mean(y))
    restart = mx.momentum.adaptive_restart()
    momenta = (
        ("no momentum (SVGD-EM)", 0.0, BLACK, "-"),
        ("0.9", 0.9, VERMILION, "--"),
        ("0.99", 0.99, SKY, "-"),
        ("adaptive restart", restart, BLUE, "-."),
    )
    figure, ax = plt.subplots(figsize=(7.4, 4.3), layout="constrained")
    for name, rule, colour, dash in momenta:
        method = accelerated(toy.log_joint, 0.3, kernel, rule)
        path = mx.trajectory(method, 0.0, start, y, 600, key=jax.random.key(3)).history
        ax.semilogy(np.abs(np.asarray(path) - exact), color=colour, ls=dash, lw=1.9, label=name)
        off = np.flatnonzero(np.abs(np.asarray(path) - exact) > 0.05)
        print(f"  momentum {name}: within 0.05 after {int(off[-1]) + 2} steps of 600")
    ax.axhline(0.05, color="grey", linestyle=":")
    ax.annotate("0.05", (250, 0.05), (2, 3), textcoords="offset points", color="#555555")
    ax.set(xlabel="step", ylabel="|θ − θ̂|", ylim=(1e-4, 500), xlim=(0, 600))
    ax.legend(loc="upper right", title="momentum", ncols=2, fontsize=11)
    figure.savefig(STATIC / "em_momentum.png")


style()
staircase()
forces()
travel()
errors()
