"""Settings of the documentation site; `make docs` builds it."""

import marginax

project = "marginax"
author = "The marginax developers"
copyright = author  # the theme's footer
release = marginax.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
html_theme = "furo"
html_title = "marginax"
exclude_patterns = ["_build", "reference"]
html_extra_path = ["reference"]  # the committed report, as it is
myst_enable_extensions = ["colon_fence", "dollarmath"]
suppress_warnings = ["myst.xref_missing"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signatures' pytree types say less than the Args
napoleon_use_ivar = True
napoleon_attr_annotations = False
default_role = "code"
