from marginax.formulas.parsing import RandomTerm, parse


def test_nested_groups_are_written_out():
    parsed = parse("y ~ x + (1 + x | a/b/c)")
    assert [term.factors for term in parsed.random] == [("a",), ("a", "b"), ("a", "b", "c")]
    assert {term.effects for term in parsed.random} == {"1 + x"}
    assert parsed.fixed == "x"


def test_two_bars_are_not_one_bar_twice():
    # formulae has no "||" and reads "(x || g)" as something else
    assert parse("y ~ (x || g)").random == (RandomTerm("x", ("g",), False),)


def test_signs_and_brackets_inside_of_calls_stay_together():
    parsed = parse("log(y + 1) ~ poly(x - 2, 3) - 1 + offset(log(t)) + (0 + I(x - 1) | g:h)")
    assert parsed.response == "log(y + 1)"
    assert parsed.fixed == "poly(x - 2, 3) - 1 + offset(log(t))"
    assert parsed.random == (RandomTerm("0 + I(x - 1)", ("g", "h"), True),)


def test_random_terms_alone_leave_a_mean():
    assert parse("y ~ (1 | g)").fixed == "1"
    assert parse("y ~ 0 + x + (1 | g)").fixed == "0 + x"
