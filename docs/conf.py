"""How the documentation is built. Nothing is fetched: it builds without a network."""

from importlib.metadata import version as installed_version

project = "mcp_trio"
author = "the mcp_trio authors"
copyright = "the mcp_trio authors"
release = version = installed_version("mcp-trio")

extensions = [
    # One markup for the README, the changelog and the pages, and one form of code block
    # that the tests can run.
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"mcp_trio {release}"

myst_enable_extensions = ["deflist", "fieldlist"]
myst_heading_anchors = 3

default_role = "code"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 80
