"""How much of every experiment is run: quick for a first look, standard, full as in the paper."""

from dataclasses import dataclass, field

__all__ = ["FULL", "LogisticSize", "NetworkSize", "QUICK", "SIZES", "STANDARD", "Size", "ToySize"]


@dataclass(frozen=True)
class ToySize:
    """The toy model; the defaults are the paper's."""

    num_steps: int = 1000
    trials: int = 20
    step_sizes: int = 100
    step_size_trials: int = 10
    ablation_trials: int = 20
    tuning_trials: int = 10
    frictions: tuple[float, ...] = tuple(i / 10 for i in range(1, 10))
    momenta: tuple[float, ...] = tuple(i / 10 for i in range(10))


@dataclass(frozen=True)
class LogisticSize:
    """Logistic regression; the defaults are the paper's."""

    num_steps: int = 1000
    long_steps: int = 20_000
    exact_draws: int = 400_000
    splits: int = 20
    step_sizes: int = 100
    step_size_seeds: int = 5
    step_size_steps: int = 500
    clouds: tuple[int, ...] = (10, 20, 100)
    tuning_trials: int = 10
    frictions: tuple[float, ...] = tuple(i / 10 for i in range(1, 10))
    momenta: tuple[float, ...] = tuple(i / 10 for i in range(10))


@dataclass(frozen=True)
class NetworkSize:
    """The Bayesian network; the defaults are the paper's."""

    num_steps: int = 500
    trials: int = 10
    cloud_trials: int = 5
    clouds: tuple[int, ...] = (5, 10, 20)
    starts: tuple[float, ...] = tuple(-3 + i / 2 for i in range(13))


@dataclass(frozen=True)
class Size:
    """All three.

    Attributes:
        name: quick, standard or full.
    """

    name: str
    toy: ToySize = field(default_factory=ToySize)
    logistic: LogisticSize = field(default_factory=LogisticSize)
    network: NetworkSize = field(default_factory=NetworkSize)


FULL = Size("full")
STANDARD = Size(
    "standard",
    logistic=LogisticSize(step_sizes=30),
    network=NetworkSize(trials=1, cloud_trials=1, starts=(-3.0, 0.0, 3.0)),
)
QUICK = Size(
    "quick",
    toy=ToySize(
        step_sizes=20,
        step_size_trials=2,
        ablation_trials=5,
        tuning_trials=1,
        frictions=(0.1, 0.5, 0.9),
        momenta=(0.0, 0.5, 0.9),
    ),
    logistic=LogisticSize(
        long_steps=1000,
        exact_draws=100_000,
        splits=3,
        step_sizes=12,
        step_size_seeds=1,
        step_size_steps=100,
        clouds=(10, 20),
        tuning_trials=1,
        frictions=(0.1, 0.5, 0.9),
        momenta=(0.0, 0.5, 0.9),
    ),
    network=NetworkSize(num_steps=20, trials=1, cloud_trials=1, clouds=(5, 10), starts=(0.0,)),
)
SIZES = {size.name: size for size in (QUICK, STANDARD, FULL)}
