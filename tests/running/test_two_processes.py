"""One run by two processes: the same answer, one set of checkpoints, and what a killed one leaves.

The processes talk over the loopback interface. Every wait has a limit, so that nothing can hang.
"""

import contextlib
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[1] / "support" / "in_processes.py"
HEARTBEAT = 10  # as in the script
LIMIT = 120  # seconds, for anything; a run takes about ten
# Together, so that the answer of one process is found once.
pytestmark = pytest.mark.slow


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextlib.contextmanager
def started(count, folder, result, max_steps, mesh, seconds=0.0):
    """The processes of a run, which do not outlive the test."""
    port = free_port()
    children = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT)]
            + [str(word) for word in (port, i, count, folder, result, max_steps, mesh, seconds)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(count)
    ]
    try:
        yield children
    finally:
        for child in children:
            child.kill()
            child.wait(timeout=LIMIT)
            child.stdout.close()
            child.stderr.close()


def ran(*arguments):
    """The standard errors of processes that ran to their end."""
    with started(*arguments) as children:
        outputs = [child.communicate(timeout=LIMIT) for child in children]
        for child, (out, err) in zip(children, outputs, strict=True):
            assert child.returncode == 0, err[-3000:]
            assert "done max_steps" in out
        return [err for _, err in outputs]


def numbers(path):
    found = np.load(f"{path}.npz")
    return {name: found[name] for name in found if found[name].dtype.kind == "f"}


def assert_same(a, b):
    a, b = numbers(a), numbers(b)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=0, atol=1e-10, err_msg=name)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The answer of one process without a mesh."""
    result = tmp_path_factory.mktemp("alone") / "result"
    ran(1, "-", result, 80, "-")
    return result


def test_two_processes_give_the_answer_of_one_and_leave_it_their_checkpoints(tmp_path, alone):
    folder = tmp_path / "folder"
    first, second = ran(2, folder, tmp_path / "half", 40, "both")
    assert "40/40" in first  # the bar
    assert "40/40" not in second
    specs = np.load(tmp_path / "half.npz")["specs"]
    assert "P('particles', 'groups')" in specs  # not replicated on the way
    # Each process wrote its own part of the cloud.
    parts = {path.name for path in (folder / "40" / "run").glob("ocdbt.process_*")}
    assert parts == {"ocdbt.process_0", "ocdbt.process_1"}
    # Two processes, laid out otherwise, go on; then one, without a mesh, ends it.
    ran(2, folder, tmp_path / "more", 60, "groups")
    assert np.load(tmp_path / "more.npz")["num_steps"] == 60
    ran(1, folder, tmp_path / "end", 80, "-")
    assert_same(tmp_path / "end", alone)


@pytest.mark.parametrize("killed", [0, 1], ids=["coordinator", "other"])
def test_a_killed_process_ends_the_other_with_a_sentence(tmp_path, alone, killed):
    folder = tmp_path / "folder"
    with started(2, folder, "-", 10_000, "both", 0.2) as children:
        deadline = time.monotonic() + LIMIT
        while not (folder / "30").exists():
            assert time.monotonic() < deadline, "no checkpoint was written"
            assert all(child.poll() is None for child in children)
            time.sleep(0.05)
        children[killed].send_signal(signal.SIGKILL)
        began = time.monotonic()
        _, words = children[1 - killed].communicate(timeout=2 * HEARTBEAT + 10)
        seconds = time.monotonic() - began
        assert children[1 - killed].returncode not in (0, -signal.SIGABRT)
    print(f"the survivor ended after {seconds:.1f} s")
    assert seconds < HEARTBEAT + 10
    said = re.search(
        r"(?:another process of the run is lost|one of them was lost)\. The last checkpoint is at "
        rf"step (\d+) in {re.escape(str(folder))}: the same call resumes from it",
        words,
    )
    assert said, words[-3000:]
    last = int(said[1])
    assert last >= 30
    assert (folder / str(last)).exists()
    # The numbers do not depend on where it was cut; 80 steps may already have been taken.
    end = max(80, last + 10)
    ran(1, folder, tmp_path / "end", end, "-")
    whole = alone
    if end > 80:
        whole = tmp_path / "whole"
        ran(1, "-", whole, end, "-")
    assert_same(tmp_path / "end", whole)
