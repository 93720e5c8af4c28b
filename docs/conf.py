"""Settings of the documentation."""

project = "purerl"
author = "The purerl maintainers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
html_theme = "furo"
html_title = "purerl"
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
nitpicky = False
