"""Data files: what is read, and what is refused with a reason and the row it is in."""

import sys
import types
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from marginax.cli import datafile
from marginax.cli.app import app


@pytest.fixture(autouse=True)
def _in_a_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text("def problem(data):\n    raise AssertionError('too late')\n")


def read(text, name="data.csv"):
    Path(name).write_text(text, encoding="utf-8")
    return datafile.read_table(Path(name))


def refused(name):
    ended = CliRunner().invoke(app, ["fit", "model.py", "--data", name])
    assert ended.exit_code == 2
    assert len(ended.stderr.strip().splitlines()) == 1
    assert ended.stdout == ""
    assert sorted(Path().glob("fit-*")) == []
    return ended.stderr


def test_csv_columns_have_the_types_they_look_like():
    table = read(
        "\ufeffcount, weight,name,ok,big\r\n"
        '1,2,"a, b",TRUE,9223372036854775808\r\n'
        "-2,1e3,NA,False,1\r\n\r\n\r\n"
    )
    assert {name: values.dtype.kind for name, values in table.items()} == {
        "count": "i",
        "weight": "f",
        "name": "U",
        "ok": "i",
        "big": "f",
    }
    assert table["count"].dtype == np.int64
    assert table["weight"].tolist() == [2.0, 1000.0]
    assert table["name"].tolist() == ["a, b", "NA"]
    assert table["ok"].tolist() == [1, 0]


def test_the_row_numbers_of_r_are_left_out():
    assert list(read('"","y"\n"1",2\n"2",3\n')) == ["y"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "data.csv is empty"),
        ("\n", "no names of columns"),
        ("a,b\n", "a header but 0 rows"),
        ("a,b\n1,2\n3\n", "has 1 cells in line 3, but its header has 2 columns"),
        ("a,b\n1,2\n3,4,5\n", "has 3 cells in line 3"),
        ("a,b\n1,2\n\n3,4\n", "empty line 3 between rows"),
        ("a,b\n1,2\n3,\n", "column 'b' has nothing in row 2 (line 3)"),
        ("a,b\n1,2\nNaN,3\n", "column 'a' has NaN in row 2 (line 3)"),
        ("a,b\n1,inf\n2,3\n", "column 'b' has inf in row 1 (line 2)"),
        ("a,b\n1,NA\n2,NA\n", "column 'b' has no values"),
        ("a,b\n1,2\n3,4\n5,x6\n", "column 'b' has 'x6' in row 3 (line 4), but numbers in most"),
        ("a;b\n1;2\n", "semicolons between its cells. Save it with commas"),
        ("a,a\n1,2\n", "two columns named 'a'"),
        ("1,2\n3,4\n", "numbers in its first line"),
        ('a,b\n1,"x\n', "not a CSV file that can be read: unexpected end of data"),
    ],
)
def test_bad_csv_files(text, says):
    Path("data.csv").write_text(text)
    assert says in refused("data.csv")


def test_files_that_cannot_be_read():
    assert "nowhere.csv cannot be read: No such file or directory" in refused("nowhere.csv")
    Path("folder.csv").mkdir()
    assert "folder.csv cannot be read: Is a directory" in refused("folder.csv")
    Path("latin.csv").write_bytes(b"a,b\n1,caf\xe9\n")
    assert "latin.csv is not text in UTF-8" in refused("latin.csv")
    Path("data.xlsx").write_bytes(b"x")
    assert "data come from .csv, .npz, .parquet files" in refused("data.xlsx")


def test_npz():
    np.savez("d.npz", x=np.ones((2, 3), np.float32), n=np.array([1, 2], np.uint8), s=["a", "b"])
    table = datafile.read_table(Path("d.npz"))
    assert [values.dtype.kind for values in table.values()] == ["f", "i", "U"]
    assert table["x"].dtype == np.float64
    assert table["x"].shape == (2, 3)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": np.array([1.0, np.nan])}, "column 'x' is nan in row 2"),
        ({"x": np.array([[1.0, 2.0], [np.inf, 0.0]])}, "column 'x' is inf in row 2"),
        ({"x": np.array([1 + 2j])}, "dtype complex128, but columns must be real numbers"),
        ({"x": np.array(["2020-01-01"], "M8[D]")}, "column 'x' has dtype datetime64"),
        ({"x": np.array([1.0]), "y": np.array([])}, "column 'y' with 0 rows"),
        ({"x": np.array([None, 1])}, "it holds Python objects"),
        ({}, "has no columns"),
    ],
)
def test_bad_npz_files(arrays, says):
    np.savez("d.npz", **arrays)
    assert says in refused("d.npz")


@pytest.mark.parametrize("content", [b"PK\x03\x04 half", b"not an archive", b"\x93NUMPY"])
def test_damaged_npz_files(content):
    Path("d.npz").write_bytes(content)
    assert "d.npz is not an .npz file of plain arrays" in refused("d.npz")


def test_parquet(monkeypatch):
    columns = {"y": np.array([1.0, 2.0]), "who": np.array(["a", "b"], object)}

    def read_table(path):
        as_columns = {n: types.SimpleNamespace(to_numpy=lambda v=v: v) for n, v in columns.items()}
        names = types.SimpleNamespace(column_names=list(columns), __getitem__=None)

        class Table:
            column_names = names.column_names

            def __getitem__(self, name):
                return as_columns[name]

        return Table()

    parquet = types.SimpleNamespace(read_table=read_table)
    arrow = types.SimpleNamespace(
        parquet=parquet, lib=types.SimpleNamespace(ArrowException=KeyError)
    )
    monkeypatch.setitem(sys.modules, "pyarrow", arrow)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    Path("d.parquet").write_bytes(b"PAR1")
    table = datafile.read_table(Path("d.parquet"))
    assert table["y"].tolist() == [1.0, 2.0]
    assert table["who"].dtype.kind == "U"
    columns["who"] = np.array(["a", None], object)
    assert "column 'who' has no value in row 2" in refused("d.parquet")


def test_parquet_without_a_reader_says_what_to_install(monkeypatch):
    for name in ("pyarrow", "pandas"):
        monkeypatch.setitem(sys.modules, name, None)
    Path("d.parquet").write_bytes(b"PAR1")
    ended = CliRunner().invoke(app, ["fit", "model.py", "--data", "d.parquet"])
    assert ended.exit_code == 1
    assert "pip install pyarrow" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_rows_gathered_by_group():
    table = datafile.by_group(read("id,groups,y\nb,1,2\na,2,3\nb,3,4\n"), "id")
    assert table["id"].tolist() == ["a", "b"]
    assert table["groups"].tolist() == [[2, 2], [1, 3]]
    assert table["y"].tolist() == [[3, 3], [2, 4]]
    assert table["mask"].tolist() == [[1, 0], [1, 1]]
    with pytest.raises(ValueError, match="have one of that name already"):
        datafile.by_group(read("id,mask\n1,2\n"), "id")
    with pytest.raises(ValueError, match=r"Column 'z' has shape \(3,\)"):
        datafile.by_group(datafile.Columns(id=np.arange(2), z=np.arange(3)), "id")


def test_a_missing_column_names_the_nearest():
    table = read("Subject,y\n1,2\n")
    with pytest.raises(KeyError, match="There is no column 'subject'.*Did you mean 'Subject'"):
        table["subject"]
    assert table.get("subject") is None
