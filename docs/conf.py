"""How the documentation is built. Nothing is fetched: it builds without a network."""

from importlib.metadata import version as installed_version

from sphinx.application import Sphinx

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
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 80

# Without a network there are no inventories of other projects; their names stay plain text.
nitpick_ignore_regex = [
    (r"py:.*", r"(abc|collections|contextlib|enum|hypercorn|logging|os|random)\..*"),
    (r"py:.*", r"(socket|ssl|trio|types)\..*"),
    (r"py:.*", r"opentelemetry\..*"),
    # Type variables, aliases and private bases, which appear in signatures only.
    (r"py:.*", r"mcp_trio\..*\b([A-Z]|T_co|_\w+)"),
    # What no application meets, in the signatures of what some do.
    (r"py:.*", r"mcp_trio\.client\.observers\.Observers|.*Supervisor"),
    (r"py:.*", r"mcp_trio\.(server\.inputs\.Inputs|http\.monitor\.Countable)"),
    (r"py:.*", r"mcp_trio\..*\b_\w+\..*"),
    # Named in signatures of what is public, and not meant to be used by themselves.
    (r"py:.*", r"mcp_trio\.(server\.offers\.Offers|http\.exchange\.ResponseWriter)"),
]

_COLON, _HIDDEN = ":", "\ua789"


def hide_colons(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Keep napoleon from reading "The key: what is compared" as a type and its description."""
    if what in ("attribute", "data", "property") and lines:
        lines[0] = lines[0].replace(_COLON, _HIDDEN)


def show_colons(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Put back what `hide_colons` took away."""
    lines[:] = [line.replace(_HIDDEN, _COLON) for line in lines]


def setup(app: Sphinx) -> None:
    """Stand before and behind napoleon, whose priority is 500."""
    app.connect("autodoc-process-docstring", hide_colons, priority=400)
    app.connect("autodoc-process-docstring", show_colons, priority=600)
