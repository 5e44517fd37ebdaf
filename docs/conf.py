"""Settings of the documentation site; `make docs` builds it."""

import os
import re
import shutil
from pathlib import Path

from bs4 import BeautifulSoup
from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

import marginax

project = "marginax"
author = "The marginax developers"
copyright = author  # the theme's footer
release = marginax.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinxcontrib.bibtex"]
html_theme = "furo"
html_title = "marginax"
html_static_path = ["_static"]
html_css_files = ["site.css"]
exclude_patterns = ["_build", "reference", "*.py", "figures", "gallery/data", "gallery/out"]
html_extra_path = ["reference"]  # the committed report, as it is
html_domain_indices = False  # six modules need no index of their own; names have one
html_math_renderer = "mathml"
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
nitpicky = True  # a link that leads nowhere is a warning, and `make docs` fails on warnings
bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "plain"
bibtex_reference_style = "author_year"
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signatures' pytree types say less than the Args
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False
default_role = "code"

# A kernel without widgets says so when tqdm is imported.
os.environ.setdefault("PYTHONWARNINGS", "ignore:IProgress")
# The gallery: every example, executed at full size; what has not changed is not executed again.
shutil.copytree(Path("../examples"), "gallery", dirs_exist_ok=True)
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = "cache"
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True


def without_types(app, what, name, obj, options, lines):
    """Our "Returns:" and properties say no type: a colon in their first sentence is not one."""
    if what in ("attribute", "property") and lines:
        lines[0] = f": {lines[0]}"
    for i, line in enumerate(lines):  # "h." alone is a letter, and no list from h on
        lines[i] = re.sub(r"^( +\w+: )([A-Za-z]\.)$", r"\1\\\2", line)
    for i, line in enumerate(lines[:-1]):
        if line.strip() == "Returns:":
            words = lines[i + 1].lstrip()
            lines[i + 1] = lines[i + 1].removesuffix(words) + f": {words}"


def lines_as_written(app, what, name, obj, options, lines):
    """Equations and tables of a docstring, indented outside of a section, keep their lines."""
    free, new = True, []
    for i, line in enumerate(lines):
        if line.strip() and not line.startswith(" "):
            free = not re.match(r"[A-Z][a-z]+:$", line)  # no "Args:"
        starts = line.startswith("    ") and i > 0 and not lines[i - 1].strip()
        if starts and free and not line.lstrip().startswith((">>>", "-", "*")):
            new, free = [*new, "::", ""], False
        new.append(line)
    lines[:] = new


def without_fields(app, what, name, obj, skip, options):
    """The fields of a NamedTuple are in its docstring already: no "Alias for field number 0"."""
    return True if "Alias for field number" in (getattr(obj, "__doc__", None) or "") else None


def mathml(node, as_block):
    r"""A formula as MathML, which browsers draw themselves: no network and no script is needed.

    An accent with an index is written {\tilde\theta}_t; docutils would put the index under the
    letter, opposite to the accent, unless something else is within the braces. Without a font for
    mathematics an accent proper touches its letter, so it is set as a script above.
    """
    tex = re.sub(r"\{(\\(?:tilde|bar|hat)\s*\\?\w+)\}_", r"{\1{}}_", node.astext())
    return tex2mathml(tex, as_block=as_block).replace('accent="true"', 'accent="false"')


def inline_formula(self, node):
    """Writes a formula within a line."""
    self.body.append(mathml(node, False))
    raise nodes.SkipNode


def block_formula(self, node):
    """Writes a formula of its own."""
    self.body.append(f'<div class="math">{mathml(node, True)}</div>')
    raise nodes.SkipNode


def for_telephones(match):
    """A table, told by its class how it is shown where its columns have no room (site.css).

    Rows of words become blocks, of which every cell says its column. Numbers stay in columns, and
    the table scrolls. Whether there is room: some 45 letters stand beside each other.
    """
    soup = BeautifulSoup(match[0], "html.parser")
    heads = [cell.get_text(" ", strip=True) for cell in soup.select("thead th")]
    rows = [row.find_all("td") for row in soup.select("tbody tr")]
    if len(heads) < 2 or not rows or any(len(row) != len(heads) for row in rows):
        return match[0]
    texts = [[cell.get_text().strip() for cell in row] for row in rows]
    columns = list(zip(*texts, strict=True))
    widest = sum(max(map(len, " ".join(column).split()), default=0) for column in columns)
    length = sum(sum(map(len, column)) / len(rows) for column in columns)
    values = [text for row in texts for text in row[1:] if text]
    numbers = sum(bool(re.match(r"[-+−<>≤≥±~]?\d", text)) for text in values)
    if numbers > 0.4 * len(values):
        soup.table["class"].append("numbers")
    elif widest + 2 * len(heads) > 45 or length > (40 if len(heads) > 2 else 150):
        soup.table["class"].append("stack")
        for row in rows:
            for head, cell in zip(heads[1:], row[1:], strict=True):
                if head and len(heads) > 2 and cell.get_text(strip=True):
                    cell["data-column"] = head
    mark_words(soup)
    return str(soup)


def mark_words(soup):
    """Cells that may be more than a line, and those with a word that must break."""
    for cell in soup.find_all("td"):
        text = cell.get_text()
        longest = max(map(len, text.split()), default=0)
        kinds = ["words"] * (len(text) > 24) + ["long-words"] * (longest > 40)
        cell["class"] = [*cell.get("class", []), *kinds]


def tables_for_telephones(app, pagename, templatename, context, doctree):
    """Called for every page, with its HTML."""
    if "body" in context:
        pattern = re.compile(r"<table class=\"[^>]*docutils.*?</table>", flags=re.DOTALL)
        context["body"] = pattern.sub(for_telephones, context["body"])


def setup(app):
    """Called by Sphinx."""
    app.connect("html-page-context", tables_for_telephones)
    app.add_html_math_renderer("mathml", (inline_formula, None), (block_formula, None))
    app.connect("autodoc-process-docstring", lines_as_written, priority=300)
    app.connect("autodoc-process-docstring", without_types, priority=400)  # before napoleon
    app.connect("autodoc-skip-member", without_fields)
