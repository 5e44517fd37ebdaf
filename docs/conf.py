"""Settings of the documentation site; `make docs` builds it."""

import shutil
from pathlib import Path

import marginax

project = "marginax"
author = "The marginax developers"
copyright = author  # the theme's footer
release = marginax.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
html_theme = "furo"
html_title = "marginax"
exclude_patterns = ["_build", "reference", "conf.py", "gallery/data", "gallery/out"]
html_extra_path = ["reference"]  # the committed report, as it is
myst_enable_extensions = ["colon_fence", "dollarmath"]
suppress_warnings = ["myst.xref_missing"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signatures' pytree types say less than the Args
napoleon_use_ivar = True
napoleon_attr_annotations = False
default_role = "code"

# The gallery: every example, executed at full size; what has not changed is not executed again.
shutil.copytree(Path("../examples"), "gallery", dirs_exist_ok=True)
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = "cache"
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
