"""The README's code runs as it stands and says what it promises."""

import re
import runpy
from pathlib import Path

import jax
import pytest

from marginax import algorithms

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_first_fit(capsys):
    code = BLOCKS[0]
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 15
    namespace = {}
    exec(code, namespace)
    said = capsys.readouterr().out.strip().splitlines()
    assert said[0].startswith("converged")
    fitted, exact = map(float, re.findall(r"-?\d+\.\d+", said[-1]))
    assert abs(fitted - exact) < 0.01


@pytest.mark.slow
def test_the_fit(capsys):
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        namespace = {}
        exec(BLOCKS[1], namespace)
    said = capsys.readouterr().out.strip().splitlines()
    assert said[-1] == "CONVERGED, 3 starts agree."
    y = namespace["y"]
    within = float((y.var(axis=1, ddof=1).mean()) ** 0.5)  # analysis of variance
    (row,) = [line for line in said if line.startswith("within")]
    assert abs(float(row.split()[1]) - within) < 1e-3


def test_the_formula(capsys):
    exec(BLOCKS[2], {})
    said = capsys.readouterr().out
    assert "wear ~ load + (1 | machine)" in said
    assert "CONVERGED." in said


@pytest.mark.slow
def test_the_mixed_model(capsys):
    with jax.numpy_rank_promotion("allow"):
        exec(BLOCKS[3], {})
    said = capsys.readouterr().out.strip().splitlines()
    assert said[0].startswith("Run: converged")
    assert "holds 100 % of the posterior variance" in said[-2]
    fitted, exact = map(float, re.findall(r"-?\d+\.\d+", said[-1]))
    assert abs(fitted - exact) < 1e-3


def test_the_table_of_methods_is_what_the_code_says():
    made = runpy.run_path(str(ROOT / "docs" / "method_table.py"))
    assert set(made["MOVES"]) == set(algorithms.__all__) - {"Algorithm"}
    assert made["written"](README) == README
