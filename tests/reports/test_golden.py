"""The golden report."""

from __future__ import annotations

import difflib

from harness.check import check
from tests.reports import golden

_SHOWN = 80


def test_the_stored_run_still_gives_the_stored_page() -> None:
    stored = golden.PAGE.read_text(encoding="utf-8").splitlines()
    diff = list(
        difflib.unified_diff(stored, golden.rendered().splitlines(), "stored", "rendered", lineterm="", n=2)
    )
    shown = "\n".join(diff[:_SHOWN])
    assert not diff, f"{shown}\nWhere that is meant: python -m tests.reports.golden"


def test_the_golden_run_is_sound_and_shows_each_kind_of_check() -> None:
    found = check(golden.FOLDER)
    assert found["problems"] == []
    verdicts = {row["id"]: row["verdict"] for claim in found["claims"] for row in claim["checks"]}
    shown = {verdicts[name] for name in golden.KEPT}
    assert shown == {"SUPPORTED", "REFUTED", "NOT MEASURABLE HERE"}


def test_a_stored_page_is_readable() -> None:
    made = golden.readable("<style>a</style><p>x</p>\n\n  <script>b</script><i>sha256-a+/b=</i>")
    assert made == "<style>\n</style>\n<p>x</p>\n<script>\n</script>\n<i>\n</i>\n"
