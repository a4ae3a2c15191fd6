"""Builds the site of docs/ strictly: `tox -e docs`, or `tox -e docs -- --external` to ask for outside links.

Sphinx names each warning; every warning is a failure: a page that no other leads to, a link within the site
that leads nowhere, a reference that is not there. The site must open from a folder without a network, so that
a page that would fetch anything from elsewhere is a failure, too.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.build_engine import ROOT

DEFAULT_SITE = ROOT / "build" / "site"
_LOADS = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\ssrc=["'](?P<source>[^"']+)
      | <link\b[^>]*\shref=["'](?P<link>[^"']+)
      | (?:@import\s+|url\()\s*["']?(?P<style>[^"')]+)""",
    re.VERBOSE,
)


def build(builder: str, out: Path) -> int:
    """Runs one of Sphinx's builders with every warning as an error; its exit code."""
    options = ["-n", "-W", "--keep-going", "-q", "-b", builder]
    folders = ["-d", str(out.with_name(out.name + "-doctrees")), str(ROOT / "docs"), str(out)]
    command = [sys.executable, "-m", "sphinx", *options, *folders]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def fetched(site: Path) -> Iterator[str]:
    """What pages or style sheets of a site would load from elsewhere, as "page: address"."""
    for path in sorted(site.rglob("*")):
        if path.suffix in {".html", ".css"}:
            for match in _LOADS.finditer(path.read_text(encoding="utf-8")):
                address = match["source"] or match["link"] or match["style"]
                if re.match(r"(?:[a-z]+:)?//", address):
                    yield f"{path.relative_to(site)}: {address}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: built, nothing to say."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs.site", description=__doc__.splitlines()[0])
    parser.add_argument("out", nargs="?", type=Path, default=DEFAULT_SITE, help="folder of the site")
    parser.add_argument("--external", action="store_true", help="ask for every link to the outside instead")
    options = parser.parse_args(arguments)
    out = options.out.resolve()
    if options.external:
        return build("linkcheck", out.with_name(out.name + "-links"))
    code = build("html", out)
    if code != 0:
        return code
    outside = list(fetched(out))
    for one in outside:
        print(f"docs: fetched from elsewhere: {one}", file=sys.stderr)
    pages = sum(1 for _ in out.rglob("*.html"))
    print(f"docs: {pages} pages in {out}")
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main())
