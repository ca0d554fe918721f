"""Configuration of Sphinx for the documentation site (`make docs`)."""

from __future__ import annotations

project = "outbox-kit"
copyright = "the authors of outbox-kit, Apache License 2.0"
extensions = ["myst_parser", "sphinx_copybutton"]
exclude_patterns = ["examples/**/.*"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "outbox-kit"
html_show_sphinx = False
html_copy_source = False
copybutton_exclude = ".linenos, .gp, .go"
