"""Claims about the toy model."""

import numpy as np

from marginax.reproduction.claims.claim import MARGINAX, NO_NUMBER, Claim, verdict
from marginax.reproduction.columns import PUBLISHED, WRITTEN
from marginax.reproduction.results import Finished
from marginax.reproduction.toy import ONE_NOISE_PATH

__all__ = ["ablation", "toy_claims"]


def toy_claims(finished: Finished) -> list[Claim]:
    """Iterations, their ratio, and the spread of the cloud."""
    arrays = finished.arrays

    def counts(label: str) -> np.ndarray:
        return arrays["iterations"].at(method=label, convention="12/12")

    def stein(column: str, name: str) -> np.ndarray:
        return counts(f"{column} / {name} / RBF")

    def words(values: np.ndarray) -> str:
        return f"{values.mean():.1f} ± {values.std():.1f}"

    plain = {column: stein(column, "SVGD-EM") for column in (PUBLISHED, WRITTEN)}
    fast = {column: stein(column, "M-SVGD-EM(0.9)") for column in (PUBLISHED, WRITTEN)}
    gain = {column: plain[column].mean() / fast[column].mean() for column in plain}
    ours = counts(MARGINAX)
    langevin = ("PGD", "MPGD", "SOUL")

    def variance(label: str) -> str:
        share = arrays["variance_ratio"].at(method=label, convention="12/12").mean()
        return f"{share:.2g}" if share < 0.01 else f"{share:.2f}"

    def means(*labels: str) -> str:
        return ", ".join(f"{counts(label).mean():.0f}" for label in labels)

    def span(label: str) -> str:
        low, high = counts(label).min(), counts(label).max()
        return f"{low:.0f}" if low == high else f"{low:.0f}–{high:.0f}"

    return [
        Claim(
            "Toy model: SVGD-EM needs this many iterations to come within 0.05 (Figure 1c)",
            "450.9 ± 115.1",
            words(plain[PUBLISHED]),
            words(plain[WRITTEN]),
            words(ours),
            "Reproduced by the released code. Algorithm 1 as written takes "
            f"{plain[WRITTEN].mean() / plain[PUBLISHED].mean():.1f} times as many: its cloud keeps "
            "its spread.",
        ),
        Claim(
            "… and M-SVGD-EM with momentum 0.9 this many (Figure 1c)",
            "232 ± 60.7",
            words(fast[PUBLISHED]),
            words(fast[WRITTEN]),
            words(ours),
            "Reproduced by the released code. Algorithm 1 as written takes "
            f"{fast[PUBLISHED].mean() / fast[WRITTEN].mean():.1f} times fewer.",
        ),
        Claim(
            "… so that momentum accelerates by a factor of",
            "1.94",
            f"{gain[PUBLISHED]:.2f}",
            f"{gain[WRITTEN]:.1f}",
            NO_NUMBER,
            verdict(gain[PUBLISHED] > 1, gain[WRITTEN] > 1)
            + " The published factor is 1 + α, a longer step; momentum itself gives far more.",
        ),
        Claim(
            "Toy model: share of the posterior variance in the cloud (1 is right), momentum 0.9",
            NO_NUMBER,
            variance(f"{PUBLISHED} / M-SVGD-EM(0.9) / RBF"),
            variance(f"{WRITTEN} / M-SVGD-EM(0.9) / RBF"),
            variance(MARGINAX),
            "The released kernel attracts; a single RBF kernel repels, but too weakly in 20 "
            "dimensions.",
        ),
        Claim(
            "Toy model, for comparison: iterations of PGD, MPGD and SOUL at the paper's settings "
            "(mean over trials with noise of their own; all trials on one noise path, as released)",
            NO_NUMBER,
            means(f"{WRITTEN} / PGD", f"{PUBLISHED} / MPGD", f"{PUBLISHED} / SOUL")
            + "; one path: "
            + ", ".join(span(f"{PUBLISHED} / {name} / {ONE_NOISE_PATH}") for name in langevin),
            means(*(f"{WRITTEN} / {name}" for name in langevin)),
            words(ours),
            "Stochastic iterates leave the ±0.05 band again; their number depends on N, γ and the "
            "noise. The released code takes one default random key for all trials, so that its "
            "numbers are those of one noise path, however many starts: the authors' repository "
            "prints 200–201, 229 and 466–640 (five starts). Our noise is another draw.",
        ),
    ]


def ablation(finished: Finished) -> list[Claim]:
    """Momentum in theta, the particles, or both."""
    arrays = finished.arrays
    measured = arrays["iterations"]

    def wins(column: str) -> int:
        """In how many of the six cases no other choice is more than 2 % faster."""
        mean = {
            kind: measured.at(method=f"{column} / {kind}").mean(axis=-1)
            for kind in ("none", "θ only", "particles only", "both")
        }
        best = np.min([mean[kind] for kind in mean if kind != "both"], axis=0)
        return int(np.sum(mean["both"] <= 1.02 * best))

    total = measured.values[0, ..., 0].size
    published, written = wins(PUBLISHED), wins(WRITTEN)
    return [
        Claim(
            "Toy model: momentum in both θ and the particles is best "
            "(three dimensions, two conventions)",
            NO_NUMBER,
            f"in {published} of {total}",
            f"in {written} of {total}",
            NO_NUMBER,
            verdict(published >= total - 1, written >= total - 1)
            + " Often one of the two does all the work.",
        )
    ]
