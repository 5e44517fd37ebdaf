"""Every example runs, at a small size, as a user would start it, and ends at its known answer."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
SMALL = {"toy": ["--steps", "100"]}
# What each must print of its known answer; that it is near enough the example asserts itself.
STATED = {
    "factor_analysis": r"Known answer: log likelihood -1030\.81083; marginax -1030\.8108",
    "formulas": r"Known answer: lme4 with 25 nodes\. Ours is within \d\.\de-0\d of it",
    "item_response": r"Known answer: ltm's estimates\. Ours are within 0\.00",
    "mixed_model": r"Known answer: lme4's output\. Largest difference: 0\.\d\d of its last digit",
    "network_prior": r"Known answer: 0\.576, by fit 0\.576",
    "pharmacokinetics": r"Known answer: a cube of 41\^3 points per person",
    "shrinkage": r"Known answer: mean 7\.6856 \(standard error 4\.07\d+\), spread 0\n",
    "volatility": r"Known answer: log likelihood -348\.205; marginax -348\.2",
    "crossed_ratings": r"Known answer: log likelihood -1367\.464773; marginax -1367\.464773",
    "spatial_counts": r"Known answer: 107\.978 by plain draws",
    "toy": r"exact maximum likelihood estimate",
}


def test_every_example_is_here():
    assert {path.stem for path in EXAMPLES} == set(STATED)


def run(example, out):
    arguments = SMALL.get(example.stem, ["--quick"])
    command = [sys.executable, str(example), *arguments, "--out", str(out)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example, tmp_path):
    if example.stem == "mixed_model":
        pytest.importorskip("numpyro")
    ran = run(example, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert re.search(STATED[example.stem], ran.stdout), ran.stdout
    figure = tmp_path / f"{example.stem}.png"
    assert ran.stdout.splitlines()[-1] == f"Figure: {figure}"
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_cells(example):
    """Tools that make notebooks of them find cells, and prose first."""
    lines = example.read_text().splitlines()
    assert lines[0] == "# %% [markdown]"
    assert lines[1].startswith("# # ")
    assert sum(line == "# %%" for line in lines) >= 3
