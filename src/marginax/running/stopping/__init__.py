r"""When to stop: rules that look at whole blocks and say why.

A rule sees every block so far and answers with a verdict or with None. Rules are pure functions of
what they see, so that a resumed run stops exactly where an unbroken one would, and they combine: `a
| b` stops when either does, `a & b` when both do.

- `settled()`, for deterministic flows: theta's remaining path, extrapolated, is short, and score
  and velocity are small beside their own scale;
- `averaged()`, for stochastic methods: block means of theta have stopped drifting, measured against
  their own Monte Carlo error, and that error is small;
- `max_seconds(s)`: wall time.

**Remaining path.** Let theta range over R_A in the third quarter of the run and over R_B in the
last. A small R_B alone says nothing: a slow flow moves little far from its end. The two together
say how fast it slows down, and so what is left. Stein flows end slowly, more like a power t^(-a) of
time than geometrically, so that is what is assumed: r = R_B / R_A gives a, and R_B / ((4/3)^a - 1)
is left. (For geometric convergence this is two to four times too careful; for r above 0.7 no end is
in sight, unless the moves are a thousand times below the tolerance.) Momentum makes theta swing,
and near a turning point it hardly moves; so the test has to hold twice, at run lengths a quarter
apart.

**Two horizons.** The second half of the run is cut into 16 batches; A is the mean of the first
eight, B of the last eight. Their Monte Carlo error comes from the successive differences of the
batch means, which a slow drift does not inflate. The test holds when A and B differ by less than
1.5 of that error, the batches are not correlated with their neighbours, and 2.5 standard errors of
the mean of all 16 are within the tolerance; and it has to hold twice, at run lengths a quarter
apart, because noise can hide a drift once.

Both are asked only at geometrically growing run lengths: a test repeated at every block would fire
by chance.
"""

from marginax.running.stopping.base import Blocks, StoppingRule, Verdict, max_seconds, never
from marginax.running.stopping.deterministic import settled
from marginax.running.stopping.stochastic import averaged

__all__ = [
    "Blocks",
    "StoppingRule",
    "Verdict",
    "averaged",
    "max_seconds",
    "never",
    "settled",
]
