"""What turns each check of claims.toml: an engine built wrong, an arm that is slowed or sped up by a known
factor, an observation that is changed, or a series of training runs with another answer. test_turned.py holds
this list to claims.toml: a check without an entry fails.
"""

from __future__ import annotations

from typing import Final

MUTANTS: Final = {
    "drop_last_columns": (("3.agree_q8", "3.agree_f32"), ()),
    "delay_off_by_one": (("7.path", "parity.logits", "parity.choice", "parity.layers"), ("7.law",)),
    "hints_elsewhere": (("6.hint_reads", "6.walk_reads", "6.hint_places"), ("1.addresses",)),
    "read_consumed_early": (("7.overlap_tokens",), ("7.overlap_window", "7.traffic")),
    "read_all_experts": (
        (
            "7.traffic",
            "7.law",
            "7.law_stored",
            "1.addresses",
            "1.bytes",
            "1.resident",
            "1.trained",
            "e2e.active",
        ),
        ("5.order",),
    ),
    "stripes_out_of_order": (("5.order",), ("1.addresses", "7.traffic")),
    "unfused": (("4.loads", "4.l1"), ("4.bytes", "4.equal")),
    "wrong_expert_read": (("7.overlap_tokens",), ("7.overlap_window", "7.traffic")),
    "walk_backwards": (("8.walk",), ("5.order", "5.order_staged")),
    "wrong_tile_order": (("2.l1.simulated",), ("4.loads", "4.equal")),
}
"""Build of the engine: the checks that it turns, and of those around it the ones that it must leave alone."""

RECORDED: Final = ("unfused", "wrong_tile_order")
"""Those whose checks replay what libcflow_record writes down; it is half of a build."""

SERIES: Final = (
    "quality.expert_delay",
    "quality.delay_cost",
    "quality.pre_dense",
    "quality.best",
    "quality.converged",
)
"""Turned by a series of training runs with another answer (test_quality_cells.py)."""

ARM: Final = (
    "1.time",
    "2.time",
    "3.speed",
    "3.roof",
    "0.regime",
    "4.time",
    "5.stream_time",
    "6.time",
    "6.time_mapping",
    "6.expert_walk",
    "6.map",
    "6.map_large",
    "7.time",
    "7.overlap_sync",
    "7.overlap_staged",
    "7.overlap_gain",
    "7.overlap_wash",
    "7.overlap_ratio",
    "7.overlap_speedup",
    "7.overlap_quotient",
    "7.overlap_native",
    "7.overlap_quiet",
    "7.overlap_schedule",
    "7.overlap_delays",
    "7.ways",
    "8.time",
    "8.time_64mb",
    "8.time_grid",
    "8.streaming",
    "e2e.ranking",
    "e2e.tokens",
    "e2e.bytes",
    "e2e.bytes_ranking",
    "e2e.same_moe",
    "e2e.decomposition",
    "e2e.speed_30b",
    "e2e.own",
)
"""Timed: turned by an arm of which every run takes a known factor longer or shorter."""

OBSERVATION: Final = (
    "1.readahead",
    "1.llamacpp",
    "2.l1.cachegrind",
    "2.l1.hardware",
    "2.l1.session",
    "2.l1.here",
    "2.l1.rows",
    "2.l1.q8",
    "2.l1.llamacpp",
    "2.l1.llamacpp_trace",
    "2.l1.matrices",
    "2.l1.columns",
    "2.l1.tiles",
    "3.tokens",
    "0.projection",
    "4.bytes",
    "4.equal",
    "5.order_control",
    "5.order_delayed",
    "5.order_staged",
    "5.stream",
    "5.requests",
    "6.ram",
    "7.law_sweep",
    "7.trained",
    "7.untrained_delays",
    "7.overlap_bytes",
    "7.overlap_window",
    "7.overlap_cpu",
    "7.timeline",
    "7.ways_bytes",
    "8.bytes",
    "8.fewer_bytes",
    "8.bytes_64mb",
    "e2e.memory",
    "quality.arch4_combined",
    "quality.perplexity",
    "quality.trains",
    "parity.perplexity",
    "parity.live",
    "parity.q8",
)
"""Exact, and no build of the engine alone turns it: turned by a changed observation."""


def turned_by(check_id: str) -> tuple[str, ...]:
    """Names of what turns a check; none when it is not in the table."""
    engine = [name for name, (turned, _) in MUTANTS.items() if check_id in turned]
    lists = {"series": SERIES, "arm": ARM, "observation": OBSERVATION}
    return (*engine, *(name for name, checks in lists.items() if check_id in checks))
