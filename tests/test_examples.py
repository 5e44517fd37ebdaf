"""Every example runs, at a small size, as a user would start it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
SMALL = {"toy": ["--steps", "100"]}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example, tmp_path):
    command = [sys.executable, str(example), *SMALL[example.stem], "--out", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "exact maximum likelihood estimate" in ran.stdout
    assert list(tmp_path.glob("*.png"))
