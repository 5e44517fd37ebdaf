"""The README's code runs as it stands and says what it promises."""

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_first_fit(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 15
    namespace = {}
    exec(code, namespace)
    said = capsys.readouterr().out.strip().splitlines()
    assert said[0].startswith("converged")
    fitted, exact = map(float, re.findall(r"-?\d+\.\d+", said[-1]))
    assert abs(fitted - exact) < 0.01


def test_every_algorithm_is_in_the_table():
    import marginax as mx
    from marginax import algorithms

    for name in algorithms.__all__:
        assert f"`{name}(log_joint" in README
        assert hasattr(mx, name)
