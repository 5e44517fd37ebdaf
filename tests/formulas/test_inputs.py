"""Bad input: each gets a sentence that says what was given, why it cannot work and what to do."""

import numpy as np
import pandas as pd
import pytest

import marginax as mx

RANDOM = np.random.default_rng(0)
ROWS = 40
TABLE = {
    "y": RANDOM.normal(size=ROWS),
    "x": RANDOM.normal(size=ROWS),
    "g": np.repeat(np.arange(8), 5),
    "one": np.zeros(ROWS, int),
    "constant": np.ones(ROWS),
    "empty": np.full(ROWS, np.nan),
    "count": RANDOM.poisson(2.0, ROWS).astype(float),
    "binary": RANDOM.integers(0, 2, ROWS),
    "word": np.array(["a", "b", "c", "d"] * 10, object),
    "id": np.arange(ROWS),
    "share": RANDOM.uniform(0.1, 0.9, ROWS),
    "positive": RANDOM.uniform(1.0, 2.0, ROWS),
}
TABLE["twice"] = 2 * TABLE["x"] + 1
TABLE["negative"] = TABLE["count"] - 3
TABLE["infinite"] = np.where(TABLE["id"] == 3, np.inf, TABLE["x"])
TABLE["day"] = pd.date_range("2020-01-01", periods=ROWS)
FRAME = pd.DataFrame(TABLE)


def bad(formula, sentence, family="gaussian", data=FRAME, **options):
    return pytest.param(formula, data, family, options, sentence, id=sentence[:40])


BAD = [
    bad("y x + (1 | g)", "needs a response, a tilde"),
    bad("y ~ x", "has no random term"),
    bad("y ~ x + (1 | g", r"lacks a '\)' at its end"),
    bad("y ~ x + 1 | g", "has a bar outside of brackets"),
    bad("y ~ x**2 + (1 | g)", r'is not a power in a formula.*Write "I\(x\*\*2\)"'),
    bad("y ~ y + x + (1 | g)", "is among what explains it"),
    bad("y ~ x + (1 | g) + (1 | g)", "is there twice"),
    bad("y ~ x + (1 | g) + (x | g)", "The effect Intercept of the group g is in two random terms"),
    bad("y ~ x + (1 | g + h)", "is not the name of a column"),
    bad(
        "y ~ x + weight + (1 | g)", r"no column 'weight' \(fixed effects\) in the data; there are y"
    ),
    bad("y ~ X + (1 | g)", "Did you mean 'x'"),
    bad("y ~ x + (1 | group)", r"no column 'group' \(the group of \(1 \| group\)\)"),
    bad("z ~ x + (1 | g)", r"no column 'z' \(the response\)"),
    bad("y ~ x + (1 | one)", "has one level, 0: a variance between levels needs at least two"),
    bad("constant ~ x + (1 | g)", "is 1 in every row: nothing varies"),
    bad("y ~ empty + (1 | g)", r"The column 'empty' \(fixed effects\) has no value in any of 40"),
    bad("y ~ infinite + (1 | g)", r"'infinite' \(fixed effects\) is infinite in row 4"),
    bad("y ~ day + (1 | g)", r"'day' \(fixed effects\) holds Datetime.*dates to a number"),
    bad("y ~ x + twice + (1 | g)", "is determined by .*: their effects cannot be told apart"),
    bad(
        "y ~ constant + (1 | g)", "'constant' is determined by Intercept|'Intercept' is determined"
    ),
    bad("y ~ C(one) + (1 | g)", "has one level, .*: it says nothing"),
    bad("y ~ x + (1 | id)", "cannot be told from the residual"),
    bad("y ~ log(x) + (1 | g)", r"'log\(x\)' is not a finite number in row"),
    bad("negative ~ x + (1 | g)", "is .* in row .*, which is negative", "poisson"),
    bad("share ~ x + (1 | g)", "not a whole number; the family", "poisson"),
    bad("count ~ x + (1 | g)", "needs 0 and 1, a proportion with weights=trials", "binomial"),
    bad("word ~ x + (1 | g)", "has the categories a, b, c, d; .* needs two", "binomial"),
    bad("word ~ x + (1 | g)", "is text .* needs numbers", "gaussian"),
    bad("y ~ x + (1 | g)", "is of positive amounts", "gamma"),
    bad("y ~ x + (1 | g)", "strictly between 0 and 1", "beta"),
    bad("binary ~ x + (1 | g)", "needs 3 to 30 ordered categories", "ordinal"),
    bad("one ~ x + (1 | g)", "never a success: the log odds are infinite", "binomial"),
    bad("one ~ x + (1 | g)", "is 0 in every row: its mean is 0", "poisson"),
    bad("y ~ x + (1 | g)", "There is no family 'gauss'; there are gaussian, binomial", "gauss"),
    bad("count ~ x + (1 | g)", "has the link log, and not 'sqrt'", "poisson", link="sqrt"),
    bad("count ~ x + (1 | g)", 'reml=True is for the family "gaussian"', "poisson", reml=True),
    bad("y ~ x + (1 | g)", "zero_inflation=True is for counts", zero_inflation=True),
    bad("y ~ x + (1 | g)", "The weights must be positive numbers", weights=-np.ones(ROWS)),
    bad("y ~ x + (1 | g)", "The weights have shape", weights=np.ones(3)),
    bad("y ~ x + (1 | g)", "The data have no rows", data=FRAME.iloc[:0]),
    bad("y ~ spline(x) + (1 | g)", r"'spline\(x\)' cannot be computed from the data"),
    bad("cbind(count, x, y) ~ x + (1 | g)", "needs two columns in its brackets", "binomial"),
    bad("cbind(count, count) ~ x + (1 | g)", "which only the family", "poisson"),
]


@pytest.mark.parametrize(("formula", "data", "family", "options", "sentence"), BAD)
def test_bad_input_gets_a_sentence(formula, data, family, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        mx.mixed(formula, data, family, **options)


def test_there_are_more_than_25_of_them():
    assert len(BAD) >= 25


@pytest.mark.parametrize("data", [[1, 2, 3], "table.csv", None])
def test_what_is_no_table_is_refused(data):
    with pytest.raises(TypeError, match="they must be a dataframe"):
        mx.mixed("y ~ x + (1 | g)", data)


def test_a_thousand_levels_are_no_fixed_effect():
    rows = 3000
    table = {
        "y": RANDOM.normal(size=rows),
        "who": [f"p{i % 1000}" for i in range(rows)],
        "g": np.arange(rows) % 7,
    }
    with pytest.raises(ValueError, match=r'1000 levels.*Make it a random effect, "\(1 \| who\)"'):
        mx.mixed("y ~ who + (1 | g)", table)


def test_a_perfect_fit_leaves_nothing():
    with pytest.raises(ValueError, match="explain 'twice' without a rest"):
        mx.mixed("twice ~ x + (1 | g)", FRAME)


@pytest.mark.slow
def test_separation_is_warned_of():
    x = np.tile([0.0, 1.0], ROWS // 2)
    y = np.where(x > 0, 1, RANDOM.integers(0, 2, ROWS))
    fit = mx.mixed("y ~ x + (1 | g)", {"y": y, "x": x, "g": TABLE["g"]}, "binomial")
    assert not fit.ok
    assert any("separation" in warning for warning in fit.warnings)


@pytest.mark.slow
def test_a_variance_of_nothing_is_a_note_and_no_warning():
    y = np.tile([0, 1, 0, 1, 1], 8)  # every group has the same three successes
    fit = mx.mixed("y ~ 1 + (1 | g)", {"y": y, "g": TABLE["g"]}, "binomial")
    assert fit.ok
    assert fit.converged
    assert fit.solution.numbers[0].estimate == 0.0
    assert fit.solution.numbers[0].standard_error is None
    assert fit.solution.fixed[0] == pytest.approx(np.log(0.6 / 0.4), abs=1e-4)
    assert any("at the boundary" in note for note in fit.notes)


def test_rows_with_gaps_are_left_out_and_said():
    table = FRAME.assign(x=np.where(TABLE["id"] < 3, np.nan, TABLE["x"]))
    fit = mx.mixed("y ~ x + (1 | g)", table)
    assert fit.num_observations == ROWS - 3
    assert "3 of 40 rows were left out: they have no value in x." in fit.notes
    assert "3 of 40 rows" in fit.summary()
    other = mx.mixed("y ~ x + (1 | g)", FRAME.iloc[3:])
    np.testing.assert_array_equal(fit.estimates, other.estimates)


@pytest.mark.slow
def test_levels_with_one_kind_of_answer_are_warned_of():
    # The standard deviation is best at infinity, and was said to be 0.
    y = np.repeat([0, 1, 0, 1, 1, 0, 0, 1], 5)
    fit = mx.mixed("y ~ 1 + (1 | g)", {"y": y, "g": TABLE["g"]}, "binomial")
    assert not fit.ok
    assert any("however large sd(Intercept | g) is" in warning for warning in fit.warnings)
    assert fit.solution.numbers[0].estimate > 5


@pytest.mark.slow
def test_a_start_stays_near_the_data():
    # Steps of least squares on the log scale went to numbers that overflowed.
    random = np.random.default_rng(3)
    b = 4.0 * random.normal(size=8)
    y = random.gamma(1.0, np.exp(b[TABLE["g"]] + 2.0 * TABLE["x"])) + 1e-12
    fit = mx.mixed("y ~ x + (1 | g)", {"y": y, "x": TABLE["x"], "g": TABLE["g"]}, "gamma")
    assert fit.converged
