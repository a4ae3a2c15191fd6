"""One token by llama.cpp in this process, for a tool that watches the process: cachegrind.

Usage: python -m baselines.llamacpp_once FOLDER BACK_END GGUF plain|repacked
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from baselines.errors import BaselineError
from baselines.llamacpp_worker import Engine


def main(arguments: list[str]) -> int:
    """Loads the model, decodes token 1 at position 0, and checks that it was repacked, or not, as asked."""
    folder, back_end, gguf, layout = arguments
    engine = Engine(Path(folder), back_end)
    try:
        engine.load(
            gguf=gguf,
            threads=1,
            cpus=[min(os.sched_getaffinity(0))],
            flash_attention=False,
            repack=layout == "repacked",
            mmap=True,
            context=32,
            kv_type="f16",
            poll=0,
            warm_up=False,
            routing=False,
        )
        engine.decode([1], [])
        if (engine.info()["repack_mib"] > 0) is not (layout == "repacked"):
            raise BaselineError(f"{layout} was asked for, {engine.info()['repack_mib']} MiB are repacked")
    except BaselineError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
