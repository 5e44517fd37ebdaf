"""Claims about the logistic regression."""

from marginax.reproduction.claims.claim import MARGINAX, NO_NUMBER, Claim, percent, verdict
from marginax.reproduction.columns import PUBLISHED, WRITTEN
from marginax.reproduction.results import Finished

__all__ = ["logistic_claims", "test_error"]


def logistic_claims(finished: Finished) -> list[Claim]:
    """Where theta comes to, and how fast."""
    arrays = finished.arrays
    at = {"prior_variance": 25.0}
    exact = float(arrays["exact"].at(**at))
    mode = float(arrays["joint_mode"].at(**at))
    fast = {c: f"{c} / M-SVGD-EM(0.9) / RBF" for c in (PUBLISHED, WRITTEN)}
    plain = {c: f"{c} / SVGD-EM / RBF" for c in (PUBLISHED, WRITTEN)}
    end = {c: float(arrays["end"].at(method=fast[c], **at)) for c in fast}
    ours = float(arrays["end"].at(method=MARGINAX, **at))

    def steps(label: str, variance: float) -> float:
        return float(arrays["iterations"].at(method=label, prior_variance=variance))

    def change(column: str) -> str:
        return "; ".join(
            f"{steps(plain[column], v):.0f} → {steps(fast[column], v):.0f}" for v in (25.0, 5.0)
        )

    def faster(variance: float) -> list[bool]:
        return [steps(fast[c], variance) < steps(plain[c], variance) for c in plain]

    off = ours - exact
    long = finished.about["settings"]["long_steps"]
    return [
        Claim(
            f"Logistic regression: θ comes to the marginal likelihood's maximum, {exact:.3f} "
            f"({long:,} steps, momentum 0.9)",
            NO_NUMBER,
            f"{end[PUBLISHED]:.3f}",
            f"{end[WRITTEN]:.3f}",
            f"{ours:.3f}",
            verdict(abs(end[PUBLISHED] - exact) < 0.01, abs(end[WRITTEN] - exact) < 0.01)
            + f" The maximum of the joint density is at {mode:.3f}. "
            f"marginax is off by {off:+.3f}.",
        ),
        Claim(
            "Logistic regression: momentum accelerates (steps to within 0.05 of it, one start, "
            "0 → 0.9; prior variance 25; 5)",
            NO_NUMBER,
            change(PUBLISHED),
            change(WRITTEN),
            "; ".join(f"{steps(MARGINAX, v):.0f}" for v in (25.0, 5.0)),
            f"Variance 25: {verdict(*faster(25.0))} Variance 5: {verdict(*faster(5.0))} "
            "As published θ passes through and leaves again.",
        ),
    ]


def test_error(finished: Finished) -> list[Claim]:
    """Early test error."""
    arrays = finished.arrays
    measured = arrays["error"]

    def error(column: str, momentum: float) -> float:
        label = f"{column} / M-SVGD-EM / RBF"
        where = {"prior_variance": 25.0, "momentum": momentum, "step": 50}
        return 100 * float(measured.at(method=label, **where))

    ours = 100 * float(measured.at(method=MARGINAX, prior_variance=25.0, momentum=0.0, step=50))
    change = {c: (error(c, 0.0), error(c, 0.9)) for c in (PUBLISHED, WRITTEN)}
    return [
        Claim(
            "Logistic regression: momentum lowers the test error early (50 steps, 0 → 0.9)",
            NO_NUMBER,
            percent(change[PUBLISHED]),
            percent(change[WRITTEN]),
            f"{ours:.1f} %",
            verdict(*(after < before for before, after in change.values())),
        )
    ]
