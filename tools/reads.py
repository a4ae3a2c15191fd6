"""Compare the engine's reader with plain io_uring: `python -m tools.reads FILE`.

The whole file is read past the page cache, in requests of one size, by the engine's reader as sessions use it
(ranges of --issue bytes, several outstanding) and by `cflow_reads_driver`, which keeps requests of the same
size under way and does nothing else. At the largest of --depth both have as many bytes under way; the plain
one also runs at the other depths, and its fastest counts. Rounds are interleaved; medians are printed.

The file should be larger than a cache of the device, and lie on a file system that takes O_DIRECT.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from engine.enums import Reader, ReadPath
from engine.errors import CflowError
from engine.native import built_beside_library
from engine.reads import MIB, consecutive, probe_reads

DRIVER_NAME = "cflow_reads_driver"


class DriverError(Exception):
    """The plain reader is missing, or did not read the file."""


@dataclass(frozen=True)
class Setup:
    """What is read and how. issue_bytes: one range of the engine; depths: requests of the plain reader."""

    path: Path
    request_bytes: int
    issue_bytes: int
    depths: tuple[int, ...]

    @property
    def ranges_outstanding(self) -> int:
        """So that the engine has as many bytes under way as the plain reader at its largest depth."""
        return max(1, max(self.depths) * self.request_bytes // self.issue_bytes)


def plain_ns(setup: Setup, depth: int) -> int:
    """Nanoseconds of the plain reader."""
    driver = built_beside_library(DRIVER_NAME)
    arguments = [str(driver), str(setup.path), str(setup.request_bytes), str(depth)]
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    except OSError as error:
        raise DriverError(f"{driver} cannot be started: {error.strerror}; build the engine") from error
    if done.returncode != 0:
        raise DriverError(done.stderr.strip() or f"{driver} ended with code {done.returncode}")
    return int(done.stdout.split()[0])


def engine_ns(setup: Setup, reader: Reader) -> int:
    """Nanoseconds of the engine's reader. Raises DriverError when it is not what was asked for."""
    ranges = consecutive(setup.path.stat().st_size, setup.issue_bytes)
    found = probe_reads(
        setup.path,
        ranges,
        reader=reader,
        request_bytes=setup.request_bytes,
        depth=setup.ranges_outstanding,
    )
    if found.path is not ReadPath.DIRECT:
        raise DriverError(f"{setup.path}: O_DIRECT is refused here, so there is nothing to compare")
    return found.ns


def compare(setup: Setup, rounds: int) -> dict[str, list[int]]:
    """Nanoseconds by arm, round by round; the arms turn, and a first round is dropped."""
    arms = {f"plain, depth {depth}": depth for depth in setup.depths}
    engine = {"engine, io_uring": Reader.IO_URING, "engine, threads": Reader.THREADS}
    names = [*arms, *engine]
    found: dict[str, list[int]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        for index in range(len(names)):
            name = names[(index + turn) % len(names)]
            elapsed_ns = engine_ns(setup, engine[name]) if name in engine else plain_ns(setup, arms[name])
            if turn > 0:
                found[name].append(elapsed_ns)
    return found


def report(setup: Setup, found: dict[str, list[int]]) -> list[str]:
    """Lines of the table: GB/s of each arm, and over the fastest plain one, round by round."""
    file_bytes = setup.path.stat().st_size
    plain = [name for name in found if name.startswith("plain")]
    best = min(plain, key=lambda name: statistics.median(found[name]))
    lines = [
        f"{setup.path.name}: {file_bytes / 1e6:.1f} MB in requests of {setup.request_bytes // 1024} KiB, "
        f"{len(found[best])} rounds; the engine has {setup.ranges_outstanding} ranges of "
        f"{setup.issue_bytes // 1024} KiB outstanding"
    ]
    for name, times in found.items():
        ratios = sorted(other / own for own, other in zip(times, found[best], strict=True))
        lines.append(
            f"{name:<18}{file_bytes / statistics.median(times):>7.2f} GB/s   over {best}: "
            f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        )
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Parses the arguments and prints the medians."""
    parser = argparse.ArgumentParser(prog="python -m tools.reads", description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--request", type=int, default=MIB, metavar="BYTES", help="one read of the device")
    parser.add_argument("--issue", type=int, default=4 * MIB, metavar="BYTES", help="one range of the engine")
    parser.add_argument("--depth", type=int, nargs="+", default=[4, 16], metavar="N", help="plain requests")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args(arguments)
    if given.rounds < 1 or given.issue < 1 or given.request < 1 or min(given.depth) < 1:
        parser.error("--rounds, --issue, --request and --depth must be at least 1")
    setup = Setup(given.file, given.request, given.issue, tuple(given.depth))
    try:
        lines = report(setup, compare(setup, given.rounds))
    except (CflowError, DriverError, OSError) as error:
        parser.error(str(error))
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
