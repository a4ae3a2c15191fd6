"""The page in a browser: how wide it is, what its script adds, and what axe-core finds.

Chromium runs without a display and without a network; every frame of one probe page shows the report at one
width, so that a run of the browser serves several. axe-core comes from a package of which only its script is
used: `pip install --no-deps axe-playwright-python`.
"""

from __future__ import annotations

import html
import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTHS = (320, 390, 768, 1280)
SCHEMES = {"light": 1, "dark": 0}
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')

pytestmark = [
    pytest.mark.no_sanitizer,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the PATH"),
]


def axe_path() -> Path | None:
    """axe.min.js of the package that brings it, None where it is not installed. Nothing is imported."""
    found = importlib.util.find_spec("axe_playwright_python")
    places = list(found.submodule_search_locations or ()) if found else []
    paths = [Path(place) / "axe.min.js" for place in places]
    return next((path for path in paths if path.is_file()), None)


def probe(folder: Path, page: str, widths: tuple[int, ...], ask: str, scheme: str = "light") -> list[Any]:
    """What `ask`, the body of an async function of a frame's document and window, returns at each width."""
    frames = "".join(f'<iframe width="{width}" height="800"></iframe>' for width in widths)
    source = json.dumps(page).replace("</", "<\\/")
    script = (
        f"const ask = async (d, w) => {{ {ask} }};"
        "const frames = [...document.querySelectorAll('iframe')];"
        "const shown = (f) => new Promise((done) => { f.onload = done; f.srcdoc = page; });"
        f"const page = {source};"
        "(async () => { const found = [];"
        "for (const f of frames) { await shown(f);"
        "found.push(await ask(f.contentDocument, f.contentWindow)); f.remove(); }"
        "return found; })().catch((e) => ({ failed: String(e) }))"
        ".then((found) => { document.body.dataset.found = JSON.stringify(found); });"
    )
    path = folder / "probe.html"
    path.write_text(f"<!DOCTYPE html><body>{frames}<script>{script}</script>", encoding="utf-8")
    command = [
        *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
        *("--disable-background-networking", "--disable-component-update", "--disable-quic"),
        f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
        *(f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=60000", "--dump-dom"),
        path.as_uri(),
    ]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=300).stdout
    answer = re.search(r'data-found="([^"]*)"', dom)
    assert answer, "the probe did not finish"
    found = json.loads(html.unescape(answer.group(1)))
    assert isinstance(found, list), found
    return found


def opened(page: str) -> str:
    """The page with everything unfolded."""
    return page.replace("<details", "<details open")


def test_page_never_scrolls_sideways(sample_page: str, tmp_path: Path) -> None:
    ask = "const e = d.documentElement; return [e.clientWidth, e.scrollWidth - e.clientWidth];"
    found = probe(tmp_path, opened(sample_page), WIDTHS, ask)
    assert [over for _, over in found] == [0] * len(WIDTHS)
    assert all(abs(wide - width) < 20 for (wide, _), width in zip(found, WIDTHS, strict=True))


def test_the_script_sorts_tables_and_offers_to_copy_commands(sample_page: str, tmp_path: Path) -> None:
    ask = """
        const raw = (t) => t.caption.textContent.includes("Raw rounds");
        const table = [...d.querySelectorAll("table.data")].find(raw);
        table.closest("article").querySelectorAll("details").forEach((e) => { e.open = true; });
        table.scrollIntoView();
        const soon = () => new Promise((r) => setTimeout(r, 20));
        for (let i = 0; i < 50 && !table.querySelector("button"); i++) await soon();
        const heads = [...table.tHead.rows[0].cells];
        const column = heads.findIndex((h) => h.textContent === "Figure");
        const values = () => [...table.tBodies[0].rows].map((r) => r.cells[column].textContent);
        const states = [[heads[column].getAttribute("aria-sort"), values()]];
        for (let i = 0; i < 3; i++) {
            heads[column].querySelector("button").click();
            states.push([heads[column].getAttribute("aria-sort"), values()]);
        }
        const copies = [...d.querySelectorAll("button.copy")];
        return { states, copies: copies.length, commands: d.querySelectorAll("code.command").length,
                 named: copies.every((b) => b.getAttribute("aria-label").length > 20),
                 said: d.getElementById("live").textContent };
    """
    (found,) = probe(tmp_path, sample_page, (1280,), ask)
    (plain, first), (up, ascending), (down, descending), (last, again) = found["states"]
    assert (plain, up, down, last) == (None, "ascending", "descending", None)
    assert ascending == sorted(first, key=float) != first
    assert descending == sorted(first, key=float, reverse=True) and again == first
    assert found["copies"] == found["commands"] > 5 and found["named"]
    assert found["said"] == "In the order of the file"


def test_a_link_to_a_folded_place_unfolds_it(sample_page: str, tmp_path: Path) -> None:
    ask = """
        const folded = d.querySelector("details details.raw");
        folded.id = "folded-place";
        w.location.hash = "folded-place";
        await new Promise((r) => setTimeout(r, 100));
        return folded.parentElement.closest("details").open;
    """
    assert probe(tmp_path, sample_page, (390,), ask) == [True]


@pytest.mark.skipif(axe_path() is None, reason="needs axe-core: pip install --no-deps axe-playwright-python")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_finds_no_fault(sample_page: str, tmp_path: Path, scheme: str) -> None:
    path = axe_path()
    assert path is not None
    axe = path.read_text(encoding="utf-8").replace("</script", "<\\/script")
    page = POLICY.sub("", opened(sample_page)).replace("</body>", f"<script>{axe}</script></body>")
    ask = """
        const dark = w.matchMedia("(prefers-color-scheme: dark)").matches;
        const run = await w.axe.run({ resultTypes: ["violations"] });
        return { dark, ran: run.passes.length, faults: run.violations.map((v) =>
            `${v.impact} ${v.id} x${v.nodes.length}: ${v.nodes[0].html.slice(0, 200)}`) };
    """
    for found in probe(tmp_path, page, (1280, 390), ask, scheme):
        assert found["dark"] is (scheme == "dark") and found["ran"] > 20
        assert found["faults"] == []
