"""What a person sees while something runs."""

import re

from marginax.running.progress import stage


def test_stages_are_told_where_a_bar_would_be(capsys):
    timings = {}
    with stage(True, "Climbing", timings, "start"):
        pass
    with stage(None, "Not on a terminal", timings, "likelihood"):
        pass
    assert re.fullmatch(r"Climbing \.\.\. 0\.\d s\n", capsys.readouterr().err)
    assert set(timings) == {"start", "likelihood"}
