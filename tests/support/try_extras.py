"""What an installed marginax does with the extras that are there, and says of those that are not.

    python try_extras.py plot cli      in an environment with the wheel and these extras
    python try_extras.py               with none of them

Every extra is tried. One that was asked for must work; another must work too if its packages are
here for another reason, and otherwise say how to install it.
"""

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

import marginax as mx


def problem():
    def log_joint(theta, x, y):
        return norm.logpdf(x, theta["m"], 1.0) + jnp.sum(norm.logpdf(y, x, 1.0))

    y = np.arange(6.0).reshape(3, 2)
    return mx.Problem.grouped(log_joint, y, theta={"m": 0.0}, latent=0.0)


def fitted():
    fit = mx.fit(problem(), num_starts=1)
    assert abs(float(fit.theta["m"]) - 2.5) < 1e-3, fit
    assert fit.draws is not None
    return fit


def try_numpyro():
    from marginax.interop.numpyro import from_numpyro

    def model(y):
        import numpyro
        from numpyro import distributions as dist

        m = numpyro.param("m", 0.0)
        with numpyro.plate("groups", 3):
            x = numpyro.sample("x", dist.Normal(m, 1.0))
            numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    made = from_numpyro(model, np.array([1.0, 2.0, 6.0]))
    assert abs(float(mx.fit(made, num_starts=1).theta["m"]) - 3.0) < 1e-3


def try_blackjax():
    def log_joint(theta, x, y):  # more latents than a grid can hold
        return jnp.sum(norm.logpdf(x, theta, 1.0)) + jnp.sum(norm.logpdf(y, x, 1.0))

    made = mx.Problem.grouped(log_joint, np.ones((3, 5)), theta=0.0, latent=np.zeros(5))
    fit = mx.fit(made, num_starts=1)
    if fit.draws is None:
        raise ImportError(next(note for note in fit.notes if "BlackJAX" in note))


def try_arviz():
    assert fitted().to_arviz().posterior.sizes["group"] == 3


def try_plot():
    fitted().plot()


def try_checkpoint():
    method = mx.pgd(lambda theta, x, y: -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2), 0.1, 0.1)
    with tempfile.TemporaryDirectory() as folder:
        for steps in (10, 20):
            run = mx.run(
                method, 0.0, jnp.ones((4, 2)), jnp.ones(2), max_steps=steps, block_size=5,
                stop=mx.stopping.never(), checkpoint=mx.Checkpoint(folder), key=np.uint32([0, 1]),
            )  # fmt: skip
        assert run.num_steps == 20


def try_cli():
    command = Path(sys.executable).parent / "marginax"
    with tempfile.TemporaryDirectory() as folder:
        for words in (["info"], ["new", "lmm"], ["fit", "lmm.py", "--data", "lmm.csv"]):
            ran = subprocess.run([command, *words], capture_output=True, text=True, cwd=folder)
            if ran.returncode == 1 and "pip install" in ran.stderr:
                raise ImportError(ran.stderr.strip())
            assert ran.returncode == 0, ran.stderr
        assert Path(folder, "fit-lmm", "report.html").exists()


def try_mixed():
    random = np.random.default_rng(0)
    g, x = np.repeat(np.arange(10), 6), random.normal(size=60)
    y = 1 + 2 * x + random.normal(size=10)[g] + random.normal(size=60)
    table = {"y": y, "x": x, "g": g}
    if find_spec("pandas"):
        import pandas

        table = pandas.DataFrame(table)
    fit = mx.mixed("y ~ x + (1 | g)", table)
    assert fit.converged
    assert abs(fit.estimates[list(fit.names).index("x")] - 2) < 0.5


NEEDED = {
    "numpyro": ["numpyro"],
    "blackjax": ["blackjax"],
    "arviz": ["arviz"],
    "plot": ["matplotlib"],
    "checkpoint": ["orbax.checkpoint"],
    "cli": ["typer", "rich"],
    "mixed": ["formulae", "narwhals", "pandas"],
}


def is_here(module):
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def main(asked):
    fitted()
    for extra, modules in NEEDED.items():
        missing = [module for module in modules if not is_here(module)]
        assert not missing or extra not in asked, f"{extra} came without {missing}"
        try:
            globals()[f"try_{extra}"]()
            print(f"{extra}: works")
        except ImportError as error:
            if not missing or f"marginax[{extra}]" not in str(error):
                raise SystemExit(f"{extra} lacks {missing}, and says: {error}") from error
            print(f"{extra}: not here, and said so: {error}")


if __name__ == "__main__":
    wanted = {part for word in sys.argv[1:] for part in word.split(",")}
    main(set(NEEDED) if "all" in wanted else wanted)
