"""What the toy experiments share: the problem in both conventions, one sweep, summaries."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from marginax.models import ToyHierarchical
from marginax.reproduction import columns
from marginax.reproduction.columns import KERNELS, PUBLISHED, WRITTEN, Method
from marginax.reproduction.results import Labelled, stack
from marginax.reproduction.sizes import ToySize
from marginax.reproduction.sweep import Progress, grid, iterations, recorded_starts, sweep, thinned
from marginax.running.trajectories import trajectory

__all__ = [
    "CONVENTIONS",
    "ONE_NOISE_PATH",
    "over_trials",
    "toy_ablation",
    "toy_learning_rates",
    "toy_methods",
    "toy_mpgd_tuning",
    "toy_problem",
    "toy_runs",
]

# variances of x about theta, y about x
CONVENTIONS = {"12/12": (12.0, 12.0), "144/1": (144.0, 1.0)}


def toy_problem(dimension: int, trials: int) -> dict[str, np.ndarray]:
    """Observations for both conventions, and starts: the recorded ones, or drawn like them."""
    recorded = recorded_starts()
    keys = jax.random.split(jax.random.fold_in(jax.random.key(2026), dimension), 4)
    ys = [
        np.asarray(ToyHierarchical(*variances).simulate(key, 10.0, dimension))
        for key, variances in zip(keys, CONVENTIONS.values(), strict=False)
    ]
    if dimension == recorded["toy_y"].size and trials <= len(recorded["toy_theta"]):
        ys[0] = recorded["toy_y"].astype(ys[0].dtype)
        thetas, clouds = recorded["toy_theta"][:trials], recorded["toy_particles"][:trials]
    else:
        thetas = np.asarray(jax.random.uniform(keys[2], (trials,), minval=-3.0, maxval=3.0))
        clouds = np.asarray(jax.random.normal(keys[3], (trials, 20, dimension)))
    dtype = ys[1].dtype
    return {"y": np.stack(ys), "theta": thetas.astype(dtype), "particles": clouds.astype(dtype)}


def toy_runs(
    method: Method,
    settings: Mapping[str, Any],
    problem: Mapping[str, np.ndarray],
    num_steps: int,
    progress: Progress,
) -> dict[str, np.ndarray]:
    """All settings at once; what is kept of each run is small.

    Every trial has noise of its own, unless the settings say under "noise" whose it has.
    """
    kept_steps = thinned(num_steps) - 1
    variances = np.array(list(CONVENTIONS.values()), problem["y"].dtype)

    def run(
        setting: Mapping[str, Any], problem: Mapping[str, Any], variances: jax.Array
    ) -> dict[str, jax.Array]:
        prior_variance, noise_variance = variances[setting["convention"]]
        model = ToyHierarchical(prior_variance, noise_variance)
        y, trial = problem["y"][setting["convention"]], setting["trial"]
        theta = problem["theta"][trial]
        end = trajectory(
            method.build(model.log_joint, setting),
            theta,
            problem["particles"][trial],
            y,
            num_steps,
            key=jax.random.fold_in(jax.random.key(7), setting.get("noise", trial)),
        )
        exact = model.maximum_likelihood(y)
        # The released code counts its starting point as iterate 0.
        counted = end.history
        if method.column == PUBLISHED:
            counted = jnp.concatenate([theta[None], end.history[:-1]])
        kept = end.history[kept_steps]
        variance = jnp.mean(jnp.var(end.particles, axis=0))
        return {
            "theta": kept,
            "squared_error": (kept - exact) ** 2,
            "iterations": iterations(counted, exact),
            "variance_ratio": variance / model.posterior_variance,
        }

    typed = {
        name: np.asarray(value, problem["y"].dtype if value.dtype.kind == "f" else np.int32)
        for name, value in settings.items()
    }
    return sweep(run, typed, dict(problem), variances, progress=progress)


def over_trials(quantities: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Over the trials, which are axis 1."""
    theta = quantities["theta"]
    with np.errstate(over="ignore", invalid="ignore"):  # some settings diverge, which is a result
        return {
            "iterations": quantities["iterations"],
            "variance_ratio": quantities["variance_ratio"],
            "theta_mean": theta.mean(axis=1),
            "theta_low": theta.min(axis=1),
            "theta_high": theta.max(axis=1),
            "squared_error": quantities["squared_error"].mean(axis=1),
        }


MOMENTA = (0.0, 0.3, 0.5, 0.9)
STEP_SIZES = {"RBF": 0.3, "median": 1.15}
LANGEVIN = {
    "PGD": {"step_size": 0.2},
    "MPGD": {"step_size": 0.2, "friction": 0.1, "inverse_mass": 20.0},
    "SOUL": {"step_size": 0.01},
}
ONE_NOISE_PATH = "one noise path"
ABLATION = {
    "none": (0.0, 0.0),
    "θ only": (0.8, 0.0),
    "particles only": (0.0, 0.8),
    "both": (0.8, 0.8),
}


class _Family(NamedTuple):
    """Runs that one compiled call holds: a method, its fixed settings, the momenta it is run at."""

    method: Method
    fixed: dict[str, float]
    momenta: tuple[float, ...] = ()
    detail: str = ""


def toy_methods(size: ToySize, progress: Progress) -> dict[str, Labelled]:
    """Every method from the recorded starts: paths of theta, squared error, iterations to 0.05."""
    problem = toy_problem(20, size.trials)
    families = [
        _Family(columns.stein_method(column, kernel), {"step_size": STEP_SIZES[kernel]}, MOMENTA)
        for kernel in KERNELS
        for column in (WRITTEN, PUBLISHED)
    ]
    # The paper's step for the median kernel is too long once there is momentum; 0.3 is not.
    median = columns.stein_method(WRITTEN, "median")
    families.append(_Family(median, {"step_size": 0.3}, MOMENTA, "γ = 0.3"))
    families += [_Family(m, LANGEVIN[m.name]) for m in columns.langevin_methods(WRITTEN)]
    released = columns.langevin_methods(PUBLISHED)
    # With noise of its own for every trial the released PGD is the one as written.
    families += [_Family(m, LANGEVIN[m.name]) for m in released if m.name != "PGD"]
    # As released all trials have one default key: here all have the noise of trial 0.
    families += [_Family(m, LANGEVIN[m.name] | {"noise": 0}, (), ONE_NOISE_PATH) for m in released]
    families.append(_Family(columns.restarted("RBF"), {"step_size": 0.3}))
    families.append(_Family(columns.marginax_default("leading"), {}))

    by_method: dict[str, dict[str, np.ndarray]] = {}
    for family in families:
        momenta = family.momenta or (0.0,)
        settings = grid(convention=range(2), momentum=momenta, trial=range(size.trials))
        settings["theta_momentum"] = settings["particle_momentum"] = settings.pop("momentum")
        settings |= {name: np.full(len(settings["trial"]), x) for name, x in family.fixed.items()}
        result = toy_runs(family.method, settings, problem, size.num_steps, progress)
        for i, momentum in enumerate(family.momenta or (None,)):
            by_method[family.method.label(momentum, family.detail)] = {
                name: value.reshape(2, len(momenta), size.trials, *value.shape[1:])[:, i]
                for name, value in result.items()
            }
    summary = {label: over_trials(quantities) for label, quantities in by_method.items()}
    return stack(
        summary,
        {
            "iterations": ("convention", "trial"),
            "variance_ratio": ("convention", "trial"),
            "theta_mean": ("convention", "step"),
            "theta_low": ("convention", "step"),
            "theta_high": ("convention", "step"),
            "squared_error": ("convention", "step"),
        },
        _coords(size.trials, size.num_steps),
    ) | _exact(problem)


def toy_learning_rates(size: ToySize, progress: Progress) -> dict[str, Labelled]:
    """The squared error after the last step against the step size, SVGD-EM, PGD and SOUL."""
    problem = toy_problem(20, size.step_size_trials)
    step_sizes = np.geomspace(1e-3, 1e2, size.step_sizes)
    pgd, _, soul = columns.langevin_methods(WRITTEN)
    methods = [columns.stein_method(WRITTEN, kernel) for kernel in KERNELS]
    methods += [columns.stein_method(PUBLISHED, "RBF"), pgd, soul]
    by_method = {}
    for method in methods:
        settings = grid(
            convention=range(2), step_size=step_sizes, trial=range(size.step_size_trials)
        )
        settings |= _no_momentum(settings)
        result = toy_runs(method, settings, problem, size.num_steps, progress)
        shape = 2, size.step_sizes, size.step_size_trials
        error = result["squared_error"][:, -1].reshape(shape)
        by_method[method.label(0.0 if method.kernel else None)] = {
            "squared_error": error.swapaxes(1, 2)
        }
    coords = _coords(size.step_size_trials, size.num_steps)
    coords["step_size"] = tuple(float(value) for value in step_sizes)
    return stack(by_method, {"squared_error": ("convention", "trial", "step_size")}, coords)


def toy_ablation(size: ToySize, progress: Progress) -> dict[str, Labelled]:
    """Momentum 0.8 in theta, in the particles, in both, in neither; in 5, 20 and 50 dimensions."""
    by_method = {}
    dimensions = (5, 20, 50)
    for column in (WRITTEN, PUBLISHED):
        method = columns.stein_method(column, "RBF")
        by_dimension: dict[str, list[Any]] = {name: [] for name in ABLATION}
        for dimension in dimensions:
            problem = toy_problem(dimension, size.ablation_trials)
            settings = grid(
                convention=range(2), kind=list(ABLATION), trial=range(size.ablation_trials)
            )
            pairs = np.array([ABLATION[kind] for kind in settings.pop("kind")])
            settings |= {"theta_momentum": pairs[:, 0], "particle_momentum": pairs[:, 1]}
            settings["step_size"] = np.full(len(pairs), 0.3)
            result = toy_runs(method, settings, problem, size.num_steps, progress)
            for i, kind in enumerate(ABLATION):
                shape = 2, len(ABLATION), size.ablation_trials
                by_dimension[kind].append(
                    over_trials(
                        {k: v.reshape(*shape, *v.shape[1:])[:, i] for k, v in result.items()}
                    )
                )
        for kind, parts in by_dimension.items():
            by_method[f"{column} / {kind}"] = {
                name: np.stack([part[name] for part in parts]) for name in parts[0]
            }
    coords = _coords(size.ablation_trials, size.num_steps) | {"dimension": dimensions}
    return stack(
        by_method,
        {
            "iterations": ("dimension", "convention", "trial"),
            "theta_mean": ("dimension", "convention", "step"),
            "squared_error": ("dimension", "convention", "step"),
        },
        coords,
    )


def toy_mpgd_tuning(size: ToySize, progress: Progress) -> dict[str, Labelled]:
    """MPGD over friction and momentum, with the inverse mass (1 - mu) / (gamma friction)."""
    problem = toy_problem(20, size.tuning_trials)
    step_sizes = (0.01, 0.2)
    by_method = {}
    for column in (WRITTEN, PUBLISHED):
        _, method, _ = columns.langevin_methods(column)
        settings = grid(
            convention=range(2),
            step_size=step_sizes,
            friction=size.frictions,
            mu=size.momenta,
            trial=range(size.tuning_trials),
        )
        friction, mu = settings["friction"], settings.pop("mu")
        settings["inverse_mass"] = (1 - mu) / (settings["step_size"] * friction)
        result = toy_runs(method, settings, problem, size.num_steps, progress)
        shape = 2, 2, len(size.frictions), len(size.momenta), size.tuning_trials
        final = result["squared_error"][:, -1].reshape(shape)
        with np.errstate(over="ignore", invalid="ignore"):
            by_method[method.label()] = {
                "iterations": result["iterations"].reshape(shape).mean(axis=-1),
                "squared_error": final.mean(axis=-1),
            }
    coords = {
        "convention": tuple(CONVENTIONS),
        "step_size": step_sizes,
        "friction": size.frictions,
        "momentum": size.momenta,
    }
    dims = ("convention", "step_size", "friction", "momentum")
    return stack(by_method, {"iterations": dims, "squared_error": dims}, coords)


def _exact(problem: Mapping[str, np.ndarray]) -> dict[str, Labelled]:
    exact = problem["y"].mean(axis=1)
    return {"exact": Labelled(exact, ("convention",), {"convention": tuple(CONVENTIONS)})}


def _coords(trials: int, num_steps: int) -> dict[str, Any]:
    return {
        "convention": tuple(CONVENTIONS),
        "trial": tuple(range(trials)),
        "step": tuple(int(t) for t in thinned(num_steps)),
    }


def _no_momentum(settings: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    zero = np.zeros(len(settings["trial"]))
    return {"theta_momentum": zero, "particle_momentum": zero}
