"""Runs held against each other: several machines, or a run and its base."""

from reports.compare.comparison import Comparison, compare
from reports.compare.page import refuse_other_names, to_html, write_page

__all__ = ["Comparison", "compare", "refuse_other_names", "to_html", "write_page"]
