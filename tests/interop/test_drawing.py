"""How figures look: numbers that can be read, one style that touches nobody's settings, panels."""

import sys

import pytest

from marginax.interop.drawing import Panel, figure_of, in_style, parts_of, readable, readable_ticks

mpl = pytest.importorskip("matplotlib")
Figure = pytest.importorskip("matplotlib.figure").Figure


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.742248, "0.742"),
        (-1250.0, "−1250"),
        (98765.4, "98765"),
        (10.0, "10"),
        (2.5e-7, "2.5e−7"),
        (3e12, "3e12"),
        (0.0, "0"),
        (float("inf"), "∞"),
        (float("nan"), "–"),
    ],
)
def test_numbers_can_be_read(value, text):
    assert readable(value) == text


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels() if label.get_text()]


@pytest.mark.parametrize(
    ("low", "length"), [(0.0, 4e-6), (0.742248, 4e-6), (1e6, 4e-3), (-3e-6, 4e-6)]
)
def test_ticks_are_short_words(low, length):
    # An axis of a path that hardly moved had the ticks "7.42248×10⁻¹".
    ax = Figure().subplots()
    ax.set_ylim(low, low + length)
    readable_ticks(ax.yaxis, 3)
    words = labels(ax.yaxis)
    assert 1 < len(set(words)) == len(words) <= 4
    assert not any("×" in word or "$" in word for word in words)


def test_logarithmic_ticks_are_round():
    ax = Figure().subplots()
    ax.set(xscale="log", xlim=(0.04, 30.0))
    readable_ticks(ax.xaxis, 5)
    assert labels(ax.xaxis) == ["0.1", "1", "10"]
    ax.set(xlim=(0.3, 1.1))
    readable_ticks(ax.xaxis, 5)
    assert "0.6" in labels(ax.xaxis)


def test_the_style_is_a_sheet_that_anybody_can_use_and_no_global_setting():
    before = mpl.rcParams["axes.spines.top"], mpl.rcParams["font.size"]
    with in_style():
        assert mpl.rcParams["axes.spines.top"] is False
    assert (mpl.rcParams["axes.spines.top"], mpl.rcParams["font.size"]) == before
    import matplotlib.style

    with matplotlib.style.context("marginax.interop.figures"):
        assert mpl.rcParams["axes.prop_cycle"].by_key()["color"][0] == "#0072B2"


def test_panels_fill_the_shorter_column_and_keep_their_order():
    drawn = []
    panels = [
        Panel(name, height, lambda part, name=name: drawn.append((name, part.subplots())))
        for name, height in (("a", 2.0), ("b", 5.0), ("c", 1.0), ("d", 3.0))
    ]
    figure = figure_of(panels)
    figure.canvas.draw()
    boxes = dict(parts_of(figure))
    assert list(boxes) == ["a", "b", "c", "d"]
    assert figure.get_size_inches().tolist() == [10.0, 6.0]
    assert boxes["a"].x0 == boxes["c"].x0 == boxes["d"].x0 == 0.0
    assert boxes["b"].x0 == pytest.approx(5.0)
    assert boxes["c"].height == pytest.approx(1.0)
    assert len(drawn) == 4


def test_one_panel_has_no_title_since_a_paper_has_a_caption():
    figure = figure_of([Panel("a", 2.0, lambda part: part.subplots())])
    assert figure.get_size_inches().tolist() == [5.0, 2.0]
    assert not [text for text in figure.findobj(mpl.text.Text) if text.get_text() == "a"]


@pytest.mark.parametrize("missing", ["matplotlib", "matplotlib.figure"])
def test_without_matplotlib_a_sentence_says_what_to_install(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=r"pip install 'marginax\[plot\]'"):
        figure_of([Panel("a", 2.0, lambda part: None)])


def test_a_notebook_shows_a_figure_as_a_picture():
    # A figure that is not pyplot's was shown as "<Figure size 1000x800 with 0 Axes>".
    import pickle

    figure = figure_of([Panel("a", 2.0, lambda part: part.subplots().plot([0.0, 1.0]))])
    pictures = [figure._repr_png_(), pickle.loads(pickle.dumps(figure))._repr_png_()]
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
