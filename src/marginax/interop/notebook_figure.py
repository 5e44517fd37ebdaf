"""A figure that a notebook shows; one of matplotlib's own does so only once pyplot is imported.

Importing this module needs matplotlib: `drawing` does so when it draws.
"""

import io

from matplotlib.figure import Figure

__all__ = ["NotebookFigure"]


class NotebookFigure(Figure):
    """matplotlib's figure, which no list of open windows keeps alive."""

    def _repr_png_(self) -> bytes:
        """What IPython asks of the value of a cell."""
        picture = io.BytesIO()
        self.savefig(picture, format="png")
        return picture.getvalue()
