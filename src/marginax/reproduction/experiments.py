"""The list of the paper's experiments: names, what computes them, how many runs they have."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple

from marginax.reproduction import logistic, logistic_errors, network, toy
from marginax.reproduction.results import Labelled
from marginax.reproduction.sizes import Size
from marginax.reproduction.sweep import Progress

__all__ = ["EXPERIMENTS", "Experiment", "PARTS", "chosen"]


REVISION = 2  # raised where the same settings give other numbers than before


class Experiment(NamedTuple):
    """One experiment.

    Attributes:
        name: of its files.
        part: toy, logistic or network.
        compute: `compute(part_size, progress) -> arrays`.
        num_runs: how many trajectories that is, for the progress bar.
    """

    name: str
    part: str
    compute: Callable[[Any, Progress], dict[str, Labelled]]
    num_runs: Callable[[Any], int]

    def settings(self, size: Size) -> dict[str, Any]:
        """What the numbers depend on; a file with other settings is made anew."""
        return asdict(getattr(size, self.part)) | {"revision": REVISION}


EXPERIMENTS = (
    Experiment("toy_methods", "toy", toy.toy_methods, lambda s: 60 * s.trials),
    Experiment(
        "toy_learning_rates",
        "toy",
        toy.toy_learning_rates,
        lambda s: 10 * s.step_sizes * s.step_size_trials,
    ),
    Experiment("toy_ablation", "toy", toy.toy_ablation, lambda s: 48 * s.ablation_trials),
    Experiment(
        "toy_mpgd_tuning",
        "toy",
        toy.toy_mpgd_tuning,
        lambda s: 8 * len(s.frictions) * len(s.momenta) * s.tuning_trials,
    ),
    Experiment(
        "logistic_methods",
        "logistic",
        logistic.logistic_methods,
        lambda s: 44 * (1 + (s.long_steps != s.num_steps)),
    ),
    Experiment(
        "logistic_test_error",
        "logistic",
        logistic_errors.logistic_test_error,
        lambda s: 42 * s.splits,
    ),
    Experiment(
        "logistic_learning_rates",
        "logistic",
        logistic_errors.logistic_learning_rates,
        lambda s: 14 * s.step_sizes * s.step_size_seeds * len(s.clouds),
    ),
    Experiment(
        "logistic_mpgd_tuning",
        "logistic",
        logistic.logistic_mpgd_tuning,
        lambda s: 4 * len(s.frictions) * len(s.momenta) * s.tuning_trials,
    ),
    Experiment("network_curves", "network", network.network_curves, lambda s: 50 * s.trials),
    Experiment(
        "network_clouds",
        "network",
        network.network_clouds,
        lambda s: 5 * s.cloud_trials * len(s.clouds),
    ),
    Experiment(
        "network_starts", "network", network.network_starts, lambda s: 13 * len(s.starts) ** 2
    ),
)
PARTS = ("toy", "logistic", "network")


def chosen(which: str) -> tuple[Experiment, ...]:
    """The experiments of one part, or all of them."""
    if which not in (*PARTS, "all"):
        raise ValueError(
            f"There is no experiment {which!r}. Choose one of toy, logistic, network, all."
        )
    return tuple(e for e in EXPERIMENTS if which in (e.part, "all"))
