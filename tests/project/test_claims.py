"""No number on a page without the script or the test that makes it: docs/claims.md is the list."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLAIMS = (ROOT / "docs" / "claims.md").read_text()
ROWS = re.findall(r"^\| `(\S+\.md)` (.+?) \| .+? \| (.+?) \|$", CLAIMS, flags=re.MULTILINE)
# No claims of their own: what is included or tells of the past, lists, and words for letters.
WITHOUT = {
    "changelog.md",
    "contributing.md",
    "bibliography.md",
    "claims.md",
    "notation.md",
    "design.md",
}
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
NUMBER = re.compile(
    r"(?<![\w.#(])\d[\d,]*\.\d+(?!\.\d)|\d\s?%|\b\d+e-\d+|10⁻"
    r"|\d (?:s|seconds|minutes|GB|MB|times|steps|iterations)\b"
)
NO_NUMBER = re.compile(
    r"^```.*?^```|<!-- (\w+): made by.*?<!-- end of \1 -->|`[^`]*`"
    r"|Python 3\.\d+|Apache-2\.0|95 % interval",
    flags=re.DOTALL | re.MULTILINE,
)


def sections_with_numbers():
    for page in PAGES:
        if page.name not in WITHOUT:
            text = NO_NUMBER.sub("", page.read_text())
            for section in re.split(r"^(?=#+ )", text, flags=re.MULTILINE):
                title, _, words = section.partition("\n")
                if NUMBER.search(words):
                    yield page.name, title.strip("# ")


def test_every_section_with_numbers_is_in_the_list():
    listed = {(page, re.sub("`[^`]*`", "", section)) for page, section, _ in ROWS}
    assert set(sections_with_numbers()) <= listed


def test_the_list_names_sections_that_there_are():
    titles = {
        (page.name, line.strip("# "))
        for page in PAGES
        for line in page.read_text().splitlines()
        if line.startswith("#")
    }
    assert {(page, section) for page, section, _ in ROWS} <= titles


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]}")
def test_what_makes_a_claim_is_there(row):
    named = re.findall(r"`([^`]+)`", row[2])
    assert named
    for name in named:
        if name.startswith("python -m benchmarks."):
            assert (ROOT / "benchmarks" / f"{name.split('.')[1]}.py").exists(), name
        elif "/" in name:
            path, _, test = name.partition("::")
            assert (ROOT / path).exists(), name
            assert not test or f"def {test}(" in (ROOT / path).read_text(), name
        else:
            assert name.startswith(("make ", "marginax reproduce", "python -m benchmarks --full"))


PAGE = "../../docs/benchmarks.md"
# What README says of a result, the file of it, and how it stands there.
MEASURED = [
    ("slopes | 3.3 s |", "mixed_models.md", "| 3.6 s | 3.3 s |"),
    ("lme4 26.1 s", "mixed_models.md", "| 26.1 s, -1593142.845 |"),
    ("| 7.9 |", "mixed_models.md", "| 7.9 |"),
    ("rows | 3.6 s |", "mixed_models.md", "| 3.6 s | 3.6 s |"),
    ("lme4 10.3 s", "mixed_models.md", "| 10.3 s, -118825.012 |"),
    ("| 2.9 |", "mixed_models.md", "| 2.9 |"),
    ("1.8 s | lme4 0.8 s, statsmodels 0.9 s", "mixed_models.md", "| 0.9 s, -875.970 | 0.8 s,"),
    ("| 0.5, 0.5 |", "mixed_models.md", "| 0.5 | 0.5 |"),
    ("off by 7e-13", "mixed_models.md", "by -6.8e-13"),
    ("off by 15 (Laplace)", "mixed_models.md", "-570.375 | – | 0.9 s, -585.500"),
    ("4.2 s; 1.4 s", "start_up.md", "README's fit, cold | 4.2 |"),
    ("4.2 s; 1.4 s", "start_up.md", "README's fit, warm | 1.4 |"),
    ("SVI 4.4 s", "start_up.md", "NumPyro's SVI to 0.1 standard errors | 4.4 |"),
    ("3.1 to 3.6 s; 0.1 s", PAGE, "| intercept | mx.fit | 3.13 | 1 | 0.13 |"),
    ("3.1 to 3.6 s; 0.1 s", PAGE, "| poisson | mx.fit | 3.57 | 1 | 0.14 |"),
    ("SVI 3.5 to 4.1 s; 0.03 to 0.06 s", PAGE, "| NumPyro SVI | 4.05 | 1.13 | 0.03 | 0.249 |"),
    ("1.1; 0.2 to 0.5 |", PAGE, "| NumPyro SVI | 3.53 | 1.13 | 0.06 | 0.451 |"),
    ("1.4e-3 standard errors", "fit_beside_svi.md", "| logistic | mx.fit | 1.4e-03 |"),
    ("SVI 0.07 to 14", "fit_beside_svi.md", "| 6.9e-02 |"),
    ("SVI 0.07 to 14", "fit_beside_svi.md", "| 1.4e+01 |"),
    ("time: 0.3 to 2.3", "fit_beside_svi.md", "| 0.34 |"),
    ("time: 0.3 to 2.3", "fit_beside_svi.md", "| 2.28 |"),
    ("off by 0.01 or less", "many_latents.md", "| +0.0098 | -0.7551 |"),
    ("approximation 0.4 to 1.0", "many_latents.md", "| -0.3663 |"),
    ("approximation 0.4 to 1.0", "many_latents.md", "| -0.9745 |"),
    ("978 fits | believed and wrong: 1", "fuzz.md", "| all | 632 | 594 | 1 | 17 | 4 |"),
    ("978 fits | believed and wrong: 1", "fuzz.md", "| 33, 34 | 346 | 297 | 0 | 5 | 4 |"),
]


@pytest.mark.parametrize(("said", "file", "stands"), MEASURED)
def test_readme_says_what_was_measured(said, file, stands):
    assert said in (ROOT / "README.md").read_text()
    assert stands in (ROOT / "benchmarks" / "results" / file).read_text()
