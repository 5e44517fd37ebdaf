"""Claims about the Bayesian network."""

from itertools import product

import numpy as np

from marginax.reproduction.claims.claim import COLUMNS, MARGINAX, NO_NUMBER, Claim, percent, verdict
from marginax.reproduction.columns import PUBLISHED, WRITTEN
from marginax.reproduction.results import Finished

__all__ = ["network_claims", "starts"]


def network_claims(finished: Finished) -> list[Claim]:
    """Test error against the step."""
    arrays = finished.arrays
    measured = arrays["error"]
    steps = np.array(measured.coords["step"])

    def error(label: str, start: float, step: int) -> float:
        i = int(np.argmin(np.abs(steps - step)))
        return 100 * float(measured.at(method=label, start=start)[i])

    last = int(steps[-1])
    rows = []
    # A set: a run of at most 100 steps has one row for each start, not the same one twice.
    for start, step in product((0.0, 2.0), sorted({min(100, last), last})):
        released, written, letter = (
            tuple(
                error(f"{column} / {name} / RBF{tail}", start, step)
                for name in ("SVGD-EM", "M-SVGD-EM(0.9)")
            )
            for column, tail in (
                (PUBLISHED, ""),
                (WRITTEN, " / accumulator 0.1"),
                (WRITTEN, " / accumulator 0"),
            )
        )
        rows.append(
            Claim(
                f"Network: momentum lowers the test error (from ({start:g}, {start:g}), "
                f"{step} steps, 0 → 0.9; as written with AdaGrad's accumulator at 0.1; at 0)",
                NO_NUMBER,
                percent(released),
                f"{percent(written)}; {percent(letter)}",
                f"{error(MARGINAX, start, step):.1f} %",
                verdict(released[1] < released[0], written[1] < written[0])
                + (
                    ""
                    if letter[1] < letter[0]
                    else " With Algorithm 2's accumulator 0 it does not."
                ),
            )
        )
    return rows


def starts(finished: Finished) -> list[Claim]:
    """Test error over starting points; one point alone says nothing about the others."""
    arrays = finished.arrays
    measured = arrays["error"]
    if measured.values[0].size == 1:
        return []
    names = ("SVGD-EM", "M-SVGD-EM(0.9)")
    grids = {c: [100 * measured.at(method=f"{c} / {n} / RBF") for n in names] for c in COLUMNS}
    ours = 100 * measured.at(method=MARGINAX)

    def words(grids: list[np.ndarray]) -> str:
        spread = " → ".join(f"{grid.std():.0f}" for grid in grids)
        return f"{percent(tuple(float(grid.mean()) for grid in grids))} (sd {spread})"

    lower = [grids[c][1].mean() < grids[c][0].mean() for c in COLUMNS]
    narrower = [grids[c][1].std() < grids[c][0].std() for c in COLUMNS]
    return [
        Claim(
            f"Network: momentum lowers the mean final error over {ours.size} starts (0 → 0.9, "
            "accumulator 0.1, in brackets the sd over starts)",
            NO_NUMBER,
            words(grids[PUBLISHED]),
            words(grids[WRITTEN]),
            f"{ours.mean():.1f} % (sd {ours.std():.0f})",
            f"{verdict(*lower)} It depends less on the start: {verdict(*narrower).lower()}",
        )
    ]
