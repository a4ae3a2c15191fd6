"""The reference of the tables of `cflow report --export`, from the columns that they declare."""

from __future__ import annotations

from reports.export import COLUMNS
from tools.docs.markdown import code, escaped, table


def export_reference() -> str:
    """Each table with its columns, in their order."""
    parts = []
    for name, columns in COLUMNS.items():
        rows = ((code(column), escaped(meaning)) for column, meaning in columns.items())
        parts.append(f"## {name}\n\n{table(('Column', 'Meaning'), rows)}")
    return "\n".join(parts)
