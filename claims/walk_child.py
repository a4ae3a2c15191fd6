"""A process that does nothing but walk files, small enough to live under a tight memory limit.

It imports the standard library alone. One job per line on stdin, one answer per line on stdout, both JSON:
path, way, ranges [[offset, bytes], ...] and request_bytes give ns, digest, device_bytes and run_delay_ns, or
error. Run as `python walk_child.py LIBRARY`, with the path of libcflow.
"""

import ctypes
import json
import sys


def device_bytes() -> int:
    """Bytes that this process has fetched from storage."""
    with open("/proc/self/io") as file:
        return int(dict(line.split(": ") for line in file.read().splitlines())["read_bytes"])


def run_delay_ns() -> int | None:
    """Run-queue delay of this thread; None where the kernel keeps none."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return None


def main() -> None:
    """Answers jobs until stdin ends."""
    library = ctypes.CDLL(sys.argv[1])
    library.cflow_last_error.restype = ctypes.c_char_p
    library.cflow_probe_walk.argtypes = [
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_uint64,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    for line in sys.stdin:
        job = json.loads(line)
        flat = [number for pair in job["ranges"] for number in pair]
        ranges = (ctypes.c_uint64 * len(flat))(*flat)
        ns, digest = ctypes.c_uint64(), ctypes.c_uint64()
        delay, before = run_delay_ns(), device_bytes()
        status = library.cflow_probe_walk(
            job["path"].encode(errors="surrogateescape"),
            job["way"],
            ranges,
            len(flat) // 2,
            job["request_bytes"],
            ctypes.byref(ns),
            ctypes.byref(digest),
        )
        read, after = device_bytes() - before, run_delay_ns()
        answer: dict[str, object] = {
            "ns": ns.value,
            "digest": digest.value,
            "device_bytes": read,
            "run_delay_ns": None if delay is None or after is None else after - delay,
        }
        if status != 0:
            answer = {"error": library.cflow_last_error().decode(errors="replace")}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
