"""Files are written whole or not at all."""

import os
import stat

import pytest

from marginax._core.files import write_atomically


def test_a_file_is_there_when_it_is_whole(tmp_path):
    path = tmp_path / "result.txt"
    seen = []

    def write(partial):
        partial.write_text("new")
        seen.append(path.exists())
        assert partial.parent == path.parent  # or the move would not be one

    write_atomically(path, write)
    assert seen == [False]
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["result.txt"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644  # mkstemp's own is for its owner alone


@pytest.mark.parametrize("error", [OSError("no space"), KeyboardInterrupt(), ValueError("bad")])
def test_what_was_there_stays_where_writing_fails(tmp_path, error):
    path = tmp_path / "result.txt"
    path.write_text("old")

    def write(partial):
        partial.write_text("half")
        raise error

    with pytest.raises(type(error)):
        write_atomically(path, write)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["result.txt"]


def test_the_mode_of_an_existing_file_is_kept(tmp_path):
    path = tmp_path / "result.txt"
    path.write_text("old")
    path.chmod(0o600)
    write_atomically(path, lambda partial: partial.write_text("new"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_writers_do_not_meet(tmp_path):
    # The bug: with one fixed name for the unfinished file, two processes write to the same one.
    path, names = tmp_path / "result.txt", []

    def outer(partial):
        names.append(partial)
        write_atomically(path, lambda inner: (names.append(inner), inner.write_text("inner")))
        partial.write_text("outer")

    write_atomically(path, outer)
    assert names[0] != names[1]
    assert path.read_text() == "outer"
