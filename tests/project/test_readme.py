"""The README's code runs as it stands and says what it promises."""

import re
import runpy
import tomllib
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_it_is_short_and_every_block_is_run_here():
    assert len(README.splitlines()) < 200
    assert len(BLOCKS) == 3


def test_the_formula(capsys):
    exec(BLOCKS[0], {})
    said = capsys.readouterr().out
    assert "wear ~ load + (1 | machine)" in said
    assert "CONVERGED." in said


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


def test_the_papers_algorithm(capsys):
    code = BLOCKS[2]
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 15
    namespace = {}
    exec(code, namespace)
    said = capsys.readouterr().out.strip().splitlines()
    assert said[0].startswith("converged")
    fitted, exact = map(float, re.findall(r"-?\d+\.\d+", said[-1]))
    assert abs(fitted - exact) < 0.01
    assert "35 %" in str(namespace["run"])


def test_the_commands_are_there():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(re.findall(r"^make (\w+)", README, flags=re.MULTILINE)) <= set(targets)


def test_links_work_on_pypi_and_the_address_is_set_once():
    project = (ROOT / "pyproject.toml").read_text()
    address = tomllib.loads(project)["tool"]["hatch"]["metadata"]["hooks"]["custom"]["address"]
    assert project.count(address) == 1
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))
    made = hook["absolute"](README, address, "1.2.3")
    links = re.findall(r"\]\(([^)\s]+)\)", made)
    assert len(links) == len(re.findall(r"\]\(", README))
    for link in links:
        assert link.startswith(("https://", "http://")), link
        if link.startswith(address):
            path = re.sub(f"^{re.escape(address)}/(blob|raw)/v1.2.3/", "", link)
            assert (ROOT / path.split("#")[0]).exists(), link
    assert f"]({address}/raw/v1.2.3/docs/_static/first.png)" in made
