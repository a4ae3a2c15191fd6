"""A picture of a run's report for the README: the first screen, 1280 x 800, light, as a small PNG.

python -m tools.picture RUN OUT.png

Needs Chromium on the PATH, and Pillow, which comes with matplotlib. Few colours keep the file small.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import reports

WIDTH: Final = 1280
HEIGHT: Final = 800
COLOURS: Final = 64
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")


def browser() -> str:
    """The path of Chromium. Raises SystemExit naming what was looked for."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        raise SystemExit(f"picture: no Chromium on the PATH; looked for {', '.join(_NAMES)}")
    return found


def picture(page: Path, out: Path) -> None:
    """Writes the first screen of a page as a PNG."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch) / "whole.png"
        command = [
            *(
                browser(),
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--no-first-run",
            ),
            *(f"--window-size={WIDTH},{HEIGHT}", f"--user-data-dir={scratch}/profile"),
            *("--blink-settings=preferredColorScheme=1", f"--screenshot={whole}", page.resolve().as_uri()),
        ]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if ran.returncode or not whole.is_file():
            raise SystemExit(f"picture: Chromium failed: {ran.stderr.strip()[-500:]}")
        with Image.open(whole) as shown:
            few = shown.convert("RGB").crop((0, 0, WIDTH, HEIGHT)).quantize(COLOURS, dither=Image.Dither.NONE)
            few.save(out, optimize=True)


def main(arguments: list[str]) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.picture", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("run", type=Path, help="folder of a run, with results.json")
    parser.add_argument("out", type=Path, help="the PNG to write")
    options = parser.parse_args(arguments)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    picture(reports.render(options.run), options.out)
    print(f"{options.out}: {options.out.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
