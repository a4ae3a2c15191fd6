"""A page that would load something from elsewhere is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.docs.site import fetched

LOCAL = '<link rel="stylesheet" href="_static/a.css"><script src="_static/b.js"></script><img src="c.png">'
LINK = '<a href="https://example.org/">elsewhere</a>'


def test_links_are_no_loads(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(LOCAL + LINK)
    (tmp_path / "a.css").write_text("p { background: url('data:image/png;base64,AA') }")
    assert list(fetched(tmp_path)) == []


@pytest.mark.parametrize(
    "text",
    [
        '<script async src="https://example.org/a.js"></script>',
        '<link rel="preconnect" href="https://example.org/a.css">',
        "<img alt='' src='//example.org/a.png'>",
        '<style>@import "https://example.org/a.css";</style>',
        "<style>@font-face { src: url(https://example.org/a.woff2) }</style>",
    ],
)
def test_what_is_fetched_from_elsewhere_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "page.html").write_text(LOCAL + text)
    found = list(fetched(tmp_path))
    assert len(found) == 1
    assert found[0].startswith("page.html: ") and "//example.org/a" in found[0]
