"""The units of the fuzzer's data sets, and what they do to every parameter."""

from typing import NamedTuple

import numpy as np
from fuzz_families import Family


class Units(NamedTuple):
    """What the data are multiplied by.

    Attributes:
        rows: of y, and of what is in its units.
        covariate: of z.
    """

    rows: float = 1.0
    covariate: float = 1.0


def random_units(random: np.random.Generator, family: Family) -> Units:
    in_units = family.link == "identity" or family.likelihood in ("square", "gamma")
    if family.likelihood == "gamma" and family.prior == "spike":
        in_units = False  # its spike is at a mean of 1
    most = 4 if family.likelihood == "square" else 9
    rows = covariate = 1.0
    if in_units and random.random() < 0.5:
        rows = 10.0 ** int(random.integers(-most, most + 1))
    if (family.covariate or family.prior == "slopes") and random.random() < 0.5:
        covariate = 10.0 ** int(random.integers(-9, 10))
    return Units(rows, covariate)


def per_latent(family: Family, units: Units) -> float:
    """The unit of a latent: that of the rows, its root, or none."""
    return {"identity": units.rows, "square": np.sqrt(units.rows)}.get(family.link, 1.0)


def changes(family: Family, units: Units) -> dict[str, tuple[float, float]]:
    """Factor and shift of every parameter from units of 1 to those of the data."""
    one = per_latent(family, units)
    shift = np.log(units.rows) if family.likelihood == "gamma" else 0.0
    level, scale = (one, shift), (one, 0.0)
    found = {
        "normal": {"mean": level, "sd": scale},
        "laplace": {"mean": level, "sd": scale},
        "student": {"mean": level, "sd": scale},
        "mixture": {"low": level, "gap": scale, "p": (1.0, 0.0)},
        "spike": {"slab": scale, "p": (1.0, 0.0)},
        "gamma": {"mean": (units.rows, 0.0), "shape": (1.0, 0.0)},
        "lognormal": {"mu": (1.0, np.log(units.rows)), "sd": (1.0, 0.0)},
        "uniform": {"level": level, "span": scale},
        "slopes": {
            "mean": level,
            "sd": scale,
            "mean_slope": (one / units.covariate, 0.0),
            "sd_slope": (one / units.covariate, 0.0),
        },
    }[family.prior]
    found["beta"] = (one / units.covariate, 0.0)
    return {**found, "noise": (units.rows, 0.0), "k": (1.0, 0.0)}
