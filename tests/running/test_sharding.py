"""Many devices: the answer of one, arrays that stay where they were put, and plain refusals.

The devices are fake and must exist before JAX starts, so that the scenarios, which are in
`on_eight_devices`, run in a process of their own each.
"""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "support" / "on_eight_devices.py"


def holds(scenario):
    ran = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(SCRIPT), scenario],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]


@pytest.mark.slow
def test_only_theta_is_sent_between_groups():
    holds("only_theta_is_sent_between_groups")


@pytest.mark.slow
def test_the_cloud_stays_where_it_was_put():
    holds("kept_where_xla_would_not")


@pytest.mark.slow
def test_the_likelihood_goes_group_by_group():
    holds("likelihood_by_groups")


@pytest.mark.slow
def test_what_does_not_fit_the_mesh_is_refused():
    holds("refusals")


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario",
    ["same_answer", "starts_and_backtracking", "checkpoints_under_another_mesh", "fits"],
)
def test_a_mesh_changes_nothing_but_where(scenario):
    holds(scenario)
