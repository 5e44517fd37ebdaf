"""What counts as slower: the comparison with the baseline, without any timing."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.extend([str(Path(__file__).parents[2]), str(Path(__file__).parent)])
from test_structure import LAYERS

from benchmarks import baseline, every_table
from benchmarks.growth import deviations
from benchmarks.tables import RESULTS


def test_only_what_grew_beyond_the_allowance_is_named():
    before = {"a / b": 2.0, "c / d": 10.0}
    assert baseline.complaints({"a / b": 2.59, "c / d": 1.0}, before) == {}
    found = baseline.complaints({"a / b": 2.61, "c / d": 10.0}, before)
    assert list(found) == ["a / b"]
    for word in ("a / b", "2 in the baseline", "2.61 now"):
        assert word in found["a / b"]


def test_a_ratio_on_one_side_only_and_a_nan_are_named():
    found = baseline.complaints({"new": 1.0, "bad": np.nan}, {"old": 1.0, "bad": 1.0})
    assert sorted(found) == ["bad", "new", "old"]


def test_a_written_baseline_comes_back(tmp_path):
    file = tmp_path / "baseline.json"
    assert baseline.read(file) == {}
    baseline.write({"a / b": 1.23456789}, file)
    assert baseline.read(file) == {"a / b": 1.235}


def test_deviations_are_from_the_power_law():
    slope, off = deviations([10, 100, 1000], [1e2, 1e4, 1e6], 2)
    assert slope == pytest.approx(2)
    np.testing.assert_allclose(off, 0, atol=1e-12)
    assert max(deviations([10, 100], [1.0, 12.0], 1)[1]) == pytest.approx(1.2**0.5 - 1)


def test_every_table_has_a_command_that_makes_it():
    """A table that no command makes again would grow old unnoticed."""
    # By tests/hard/fuzz.py and tests/support/mutants.py; and what two texts say of a GPU, in words.
    by_hand = {"fuzz.md", "mutants.md", "velocity_ceiling.md"}
    files = {file for table in every_table.TABLES.values() for file in table.files}
    pages = {path.name for path in RESULTS.glob("*.md")} - by_hand
    assert pages <= files, "name it in TABLES of benchmarks/every_table.py"
    for table in every_table.TABLES.values():
        for command in table.commands:
            package, *module = command.split()[1].split(".")
            folder = Path(baseline.__file__).parents[1] / package
            assert (folder / f"{'.'.join(module) or '__main__'}.py").exists(), command


def test_the_checksum_is_of_what_is_computed(tmp_path, monkeypatch):
    package = tmp_path / "src" / "marginax"
    package.mkdir(parents=True)
    monkeypatch.setattr(every_table, "ROOT", tmp_path)
    told = []
    for text in ('"""One."""\nX = 1\n', '"""Two."""\n# why\nX = 1\n', '"""Two."""\nX = 2\n'):
        (package / "a.py").write_text(text)
        told.append(every_table.code_checksum())
    assert told[0] == told[1] != told[2]
    of_runs = every_table.code_checksum(fits=False)
    (package / "fitting").mkdir()
    (package / "fitting" / "fitter.py").write_text("Y = 1")
    assert every_table.code_checksum(fits=False) == of_runs
    assert every_table.code_checksum() not in (told[2], of_runs)


def test_tables_of_runs_use_nothing_of_fits():
    """They are not made again when only the code of likelihoods or fits has changed."""
    above = LAYERS[LAYERS.index(["running"]) + 1 :]
    assert {*every_table.OF_FITS, "models"} == {folder for layer in above for folder in layer}
    of_fits = re.compile(
        rf"mx\.(fit|mixed|from_numpyro)\b|marginax\.({'|'.join(every_table.OF_FITS)})"
    )
    root = Path(baseline.__file__).parents[1]
    for name, table in every_table.TABLES.items():
        if not table.fits:
            scripts = [root / f"{one.split()[1].replace('.', '/')}.py" for one in table.commands]
            assert not any(of_fits.search(path.read_text()) for path in scripts), name
