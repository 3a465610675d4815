"""How the site is built: ``make docs``.

The source folder is the root of the repository, so that README, CHANGELOG and the pages of `paper/`
and `benchmarks/` are pages of the site, and their relative links lead where they lead in a clone.
Nothing on the site comes from another host: no font, no script, no formula renderer.
"""

from __future__ import annotations

import inspect
import os
from typing import Any

import matplotlib
from sphinx_gallery.sorting import ExplicitOrder

from varjepa.version import __version__

matplotlib.use("agg")
os.environ.setdefault("OMP_NUM_THREADS", "2")

project = "varjepa"
author = "varjepa developers"
copyright = "varjepa developers, Apache-2.0"  # noqa: A001 - Sphinx's name
version = release = __version__
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/**",
    "benchmarks/*.md",
    "paper/*.md",
    "paper/results/tables.md",
]
exclude_patterns = [".venv", "build", "site", "src", "tests", "docs/gallery/*.ipynb"]

# --- Markdown

myst_heading_anchors = 3
myst_links_external_new_tab = False

# --- API pages

autosummary_generate = False  # only tables of names; the pages are written by hand
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False  # scikit-learn's would need its own references
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_use_ivar = False
toc_object_entries_show_parents = "hide"
napoleon_use_admonition_for_examples = False


def skip_foreign_members(
    app: Any, what: str, name: str, member: Any, is_skipped: bool, options: Any
) -> bool | None:
    """Leave out what scikit-learn and scipy add; their docstrings refer to their own pages."""
    home = getattr(inspect.unwrap(member), "__module__", None) if callable(member) else None
    return True if isinstance(home, str) and not home.startswith("varjepa") else None


def setup(app: Any) -> None:
    app.connect("autodoc-skip-member", skip_foreign_members)


# --- gallery

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "docs/gallery",
    "filename_pattern": r"/[a-z_]+\.py$",
    "within_subsection_order": ExplicitOrder(
        [
            "audit.py",
            "fill_missing.py",
            "explore.py",
            "outliers.py",
            "abstain.py",
            "sample.py",
            "ambiguity.py",
            "embed.py",
            "pipeline.py",
            "grid_search.py",
            "stream_files.py",
        ]
    ),
    "reset_modules": ("matplotlib",),
    "capture_repr": ("_repr_html_", "__repr__"),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "thumbnail_size": (560, 250),
    "show_signature": False,
    "min_reported_time": float(
        "inf"
    ),  # the time of a build on a busy machine tells nobody anything
    "remove_config_comments": True,
    "write_computation_times": False,
    "copyfile_regex": r".*\.md",
}

# --- looks

html_theme = "pydata_sphinx_theme"
html_title = f"varjepa {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"docs/index": [], "docs/start": []}
html_theme_options = {
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "navigation_depth": 2,
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_additional_pages = {"index": "to_start.html"}
templates_path = ["_templates"]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
