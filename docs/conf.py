"""How Sphinx builds this folder: `tox -e docs`."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.docs.pages import write_pages  # noqa: E402  (the checkout, which holds it, is not installed)

project = "cflow-claims"
author = "the cflow-claims project"
project_copyright = "the cflow-claims project; licence Apache-2.0"
html_title = "cflow-claims"
html_theme = "furo"
html_copy_source = False
html_show_sphinx = False
extensions = ["myst_parser"]
exclude_patterns = ["generated"]
myst_heading_anchors = 4
# What a document quotes must stand there as it was typed: no curly quotes, no long dashes.
smartquotes = False
# Addresses that answer only to a browser, and those of a machine that is rented.
linkcheck_ignore = [r"http://169\.254\..*"]
linkcheck_timeout = 20


def setup(app: Any) -> None:
    """The generated parts are made before the pages that include them are read."""
    app.connect("builder-inited", lambda _: write_pages())
