"""Runs held against each other: several machines, or a run and its base."""

from reports.compare.comparison import Comparison, compare
from reports.compare.page import refuse_target, to_html, write_page

__all__ = ["Comparison", "compare", "refuse_target", "to_html", "write_page"]
