"""A comparison on the terminal: the tables of the page, the long ones left to it."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid

from cli.console import shown
from reports.compare import base_view, view
from reports.compare.comparison import Comparison
from reports.model import Table


def print_comparison(found: Comparison) -> None:
    """Runs, marks, claims, and what differs or moved; texts are folded, never cut."""
    console = Console(highlight=False, markup=False, emoji=False)
    if found.based:
        console.print(shown(base_view.sentence(found)))
        tables = [base_view.moves_table(found, all_of_them=False), base_view.changes_table(found)]
    else:
        console.print(shown(view.sentence(found)))
        tables = [view.facts_table(found, same=False), view.differences_table(found)]
    all_tables = (view.runs_table(found), view.marks_table(found), view.claims_table(found), *tables)
    for table in (*all_tables, view.refused_table(found)):
        if table.rows:
            console.print()
            console.print(grid(table))
    last = view.ASSOCIATION if found.differences else base_view.left_out(found)
    if last:
        console.print()
        console.print(shown(last))


def grid(table: Table) -> Grid:
    """A table of the page for a terminal. Muted rows are dim."""
    made = Grid(title=table.title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        made.add_column(shown(column.name), justify="right" if column.numeric else "left", overflow="fold")
    for row in table.rows:
        made.add_row(*map(shown, row.cells), style="dim" if row.muted else "")
    return made
