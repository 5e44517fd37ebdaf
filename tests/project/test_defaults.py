"""A default is a promise: one that changes is a line in the CHANGELOG, and a line here."""

import inspect
import types

import marginax as mx

DEFAULTS = {
    "Algorithm": {"stochastic": False, "blocks": "whole"},
    "Checkpoint": {"every_seconds": 30.0, "max_to_keep": 3},
    "LogJoint": {"blocks": "whole", "first_derivatives_only": False},
    "Run": {"starts_agree": True},
    "asvgd_em": {"quadratic": "exact", "ridge": 0.1, "restart": "speed"},
    "coin_em": {"damping": 0.0},
    "fit": {
        "num_starts": 3,
        "max_steps": 500,
        "compute_likelihood": True,
        "draw_posterior": True,
    },
    "jala_em": {"resample_below": 0.5},
    "kipla": {"discretization": "kiplmc1"},
    "m_svgd_em": {"theta_momentum": 0.9, "particle_momentum": 0.9},
    "mcem": {"num_moves": 10},
    "mixed": {"family": "gaussian", "reml": False, "zero_inflation": False},
    "mpgd": {"theta_scale": 1.0},
    "run": {
        "group_warmup_steps": 0,
        "on_divergence": "backtrack",
        "throw": False,
        "diagnose": True,
    },
    "soul": {"num_warmup": 0, "averaging_weight": 1.0},
    "tuning_free": {"batches": False},
    "diagnostics.check": {"blocks": "whole", "random": False},
    "diagnostics.cross_block_curvature": {"blocks": "leading", "num_halves": 8},
    "diagnostics.kernel_stein_discrepancy": {"scale": 1.0},
    "diagnostics.summarize": {"blocks": "leading"},
    "kernels.Kernel": {
        "blocks": "whole",
        "within": False,
        "fits_batches": False,
        "is_field": False,
        "random": False,
    },
    "kernels.blob": {"bandwidth": "median"},
    "kernels.blockwise": {"blocks": "leading"},
    "kernels.energy": {"bandwidth": 1.0, "precision": "full"},
    "kernels.gfsd": {"bandwidth": "median"},
    "kernels.gfsf": {"bandwidth": "median", "ridge": 0.01},
    "kernels.imq": {"bandwidth": 1.0, "precision": "full"},
    "kernels.inverse_log": {"bandwidth": 1.0, "precision": "full"},
    "kernels.linear": {"covariance": "full"},
    "kernels.paper_rbf": {"precision": "full"},
    "kernels.random_batches": {"seed": 0},
    "kernels.rbf": {"bandwidth": "median", "precision": "full"},
    "metrics.curvature": {"largest_block": 64},
    "models.DoubleWell": {"noise_variance": 0.25},
    "models.LogisticRegression": {"prior_variance": 5.0},
    "models.ToyHierarchical": {"prior_variance": 1.0, "noise_variance": 1.0},
    "models.mnist_4_vs_9": {"random_state": 0},
    "models.wisconsin": {"random_state": 45},
    "momentum.MomentumRule": {"by_group": False},
    "momentum.wag": {"acceleration": 4.0},
    "proximal.group_soft_threshold": {"weight": 1.0},
    "proximal.laplace_around_theta": {"weight": 1.0},
    "proximal.nuclear": {"weight": 1.0},
    "proximal.soft_threshold": {"weight": 1.0},
    "stopping.averaged": {"tolerance": 0.01},
    "stopping.settled": {"tolerance": 0.01},
    "transforms.Transform": {"elementwise": False},
}


def public():
    """Every public name behind `marginax.`, with what it names."""
    for name in mx.__all__:
        value = getattr(mx, name)
        if isinstance(value, types.ModuleType):
            yield from ((f"{name}.{inner}", getattr(value, inner)) for inner in value.__all__)
        else:
            yield name, value


def test_defaults_are_those_that_are_promised():
    said = {
        name: {
            parameter.name: parameter.default
            for parameter in inspect.signature(value).parameters.values()
            if isinstance(parameter.default, bool | int | float | str)
        }
        for name, value in public()
        if inspect.isfunction(value)
        or (inspect.isclass(value) and not issubclass(value, BaseException))
    }
    assert {name: defaults for name, defaults in said.items() if defaults} == DEFAULTS
