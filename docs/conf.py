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


def equations_as_they_stand(app, what, name, obj, options, lines):
    """Make a literal block of each indented block above the sections of a docstring.

    Docstrings show an equation as an indented block, which reStructuredText takes for a quotation.
    """
    result, inside = [], False
    for number, line in enumerate(lines):
        if line.rstrip() in ("Args:", "Returns:", "Raises:"):
            result += lines[number:]
            break
        starts = line.startswith("    ") and not inside
        if starts and (number == 0 or not lines[number - 1].strip()):
            result += ["::", ""]
            inside = True
        elif line.strip() and not line.startswith("    "):
            inside = False
        result.append(line)
    lines[:] = result


def only_our_own(app, what, name, obj, skip, options):
    """Leave out what tensordict puts into every `TensorClass`, whose pages are its own."""
    module = getattr(obj, "__module__", None) or getattr(
        getattr(obj, "fget", None), "__module__", ""
    )
    return True if str(module).startswith(("tensordict", "torch")) else skip


def setup(app):
    """Register the hooks, the first to run before napoleon's."""
    app.connect("autodoc-skip-member", only_our_own)
    app.connect("autodoc-process-docstring", equations_as_they_stand, priority=100)
