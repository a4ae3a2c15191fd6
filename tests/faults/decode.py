"""`python -m tests.faults.decode MODEL`: logits by residency, and what the threads follow from, as JSON."""

from __future__ import annotations

import json
import locale
import sys

from engine.model import Model
from engine.session import Session
from engine.topology import read_topology

locale.setlocale(locale.LC_ALL, "")
found: dict[str, object] = {}
with Model(sys.argv[1]) as model:
    for residency in ("mmap", "copy", "direct"):
        with Session(model, residency=residency) as session:
            found[residency] = session.decode([1, 2, 3]).tobytes().hex()
topology = read_topology()
found["threads"], found["quota"] = topology.threads, topology.quota_cpus
found["point"] = locale.localeconv()["decimal_point"]
print(json.dumps(found))
