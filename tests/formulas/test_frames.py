"""The same numbers from every kind of table."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import marginax as mx

RANDOM = np.random.default_rng(0)
G = np.repeat([f"s{i}" for i in range(10)], 6)
COLUMNS = {
    "y": RANDOM.normal(size=60) + np.repeat(RANDOM.normal(size=10), 6),
    "x": RANDOM.normal(size=60),
    "kind": RANDOM.choice(["b", "a", "c"], 60).tolist(),
    "g": G.tolist(),
}
COLUMNS["x"][7] = np.nan


def with_null(library):
    x = [None if np.isnan(value) else float(value) for value in COLUMNS["x"]]
    return library({**COLUMNS, "x": x, "y": COLUMNS["y"].tolist()})


TABLES = {
    "pandas": pd.DataFrame(COLUMNS),
    "polars": with_null(pl.DataFrame),
    "lazy polars": with_null(pl.LazyFrame),
    "pyarrow": with_null(pa.table),
    "dict": COLUMNS,
}


@pytest.mark.parametrize("kind", TABLES)
def test_the_same_numbers_from_every_library(kind):
    formula = "y ~ x * kind + (1 | g)"
    expected = mx.mixed(formula, TABLES["pandas"])
    fit = mx.mixed(formula, TABLES[kind])
    np.testing.assert_array_equal(fit.estimates, expected.estimates)
    assert fit.names == expected.names
    assert fit.notes == expected.notes
    assert fit.num_observations == 59


def test_results_are_tables_of_the_same_library():
    kinds = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.Table}
    for kind, table in kinds.items():
        fit = mx.mixed("y ~ x + (1 | g)", TABLES[kind])
        for result in (fit.fixed_effects, fit.random_effects(), fit.variance_components):
            assert isinstance(result, table)


def test_categories_keep_their_order():
    for table in (
        pd.DataFrame(COLUMNS).assign(kind=pd.Categorical(COLUMNS["kind"], ["c", "a", "b"])),
        with_null(pl.DataFrame).with_columns(pl.col("kind").cast(pl.Enum(["c", "a", "b"]))),
    ):
        fit = mx.mixed("y ~ kind + (1 | g)", table)
        assert fit.names[:3] == ("Intercept", "kind[a]", "kind[b]")
        assert fit.design.coding["kind"] == ("c", "a", "b")
        assert "kind has the levels c, a, b; the first is the reference" in fit.summary()


def test_groups_that_are_numbers_are_ordered_as_numbers():
    table = {**COLUMNS, "g": np.repeat(np.arange(10) + 1, 6)}
    fit = mx.mixed("y ~ 1 + (1 | g)", table)
    assert [str(level) for level in fit.design.columns.groups[0].levels][:2] == ["1", "2"]
    assert list(fit.random_effects()["level"])[-1] == "10"
