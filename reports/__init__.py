"""The HTML report of a run: `reports.render(DIR)` writes DIR/report.html from DIR/results.json."""

from reports.render import render

__all__ = ["render"]
