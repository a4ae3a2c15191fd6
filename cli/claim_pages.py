"""The pages about the claims: one text for the documents and for the terminal."""

import re
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path

from cli.registry import claims_path

SECTIONS = ("Background", "What we do", "How it could fool us")
"""Of a page, those that a terminal shows."""
_HEADING = re.compile(r"^## +(.+?) *$", re.MULTILINE)


def page_folders() -> tuple[Path, ...]:
    """Where the pages may lie: in a checkout, also where one is installed editable, or inside the package."""
    checkout = claims_path().parent.parent / "docs" / "claims"
    return checkout, Path(str(resources.files("claims") / "pages"))


def sections(claim_id: str, folders: Iterable[Path] | None = None) -> Mapping[str, str]:
    """Markdown by heading, of the sections that the page of a claim has; empty where there is no page."""
    for folder in page_folders() if folders is None else folders:
        path = folder / f"{claim_id}.md"
        if path.is_file():
            parts = _HEADING.split(path.read_text(encoding="utf-8"))
            found = dict(zip(parts[1::2], parts[2::2], strict=True))
            return {name: found[name].strip() for name in SECTIONS if name in found}
    return {}
