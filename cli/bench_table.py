"""Rows and ratios of `cflow bench` for people."""

from collections.abc import Iterator, Sequence

from claims.speed import Ratio, Row

_HEADER = (
    "engine                  threads  isa          tok/s  ms/token (p10 - p90)      prompt tok/s  MB/token"
    "    GB/s  roof GB/s   share  of probe"
)


def lines(rows: Sequence[Row], ratios: Sequence[Ratio]) -> Iterator[str]:
    """The table of engines, our streams, then a line per ratio."""
    yield _HEADER
    yield from map(_row, rows)
    for row in rows:
        if row.streams_ns_per_token is not None:
            yield ""
            yield from _streams(row)
    if ratios:
        yield ""
        yield from map(_ratio, ratios)


def notes(rows: Sequence[Row]) -> Iterator[str]:
    """What a reader of the table must know; doubts that rows share come once."""
    if any(row.storage is not None for row in rows):
        yield "no share of the memory's roof where experts came from disk"
    if any(row.share_of_roof is None and row.storage is None for row in rows):
        yield "no share where weights came faster than the roof: from a cache, or the probe was disturbed"
    for doubt in dict.fromkeys(doubt for row in rows for doubt in row.doubts):
        yield f"doubt: {doubt}"
    for row in rows:
        if "closeness" in row.settings:
            yield _other_format(row)
    for row in rows:
        if not row.settings["warm_up"]["steady"]:
            yield f"doubt: {row.engine}, {_threads(row.threads)}: not steady after the warm-up"


def _other_format(row: Row) -> str:
    close = row.settings["closeness"]
    kernels = ", ".join(row.settings["kernels"]) or "not named"
    return (
        f"{row.engine}, {_threads(row.threads)}: kernels {kernels}; "
        f"logits differ by {close['difference']:.3g}, {close['difference'] / close['spread']:.1%} of their "
        f"spread, {close['same_choice']} of {close['positions']} choices are the same"
    )


def _row(row: Row) -> str:
    roof = "void" if row.roof_bytes_per_s is None else f"{row.roof_bytes_per_s / 1e9:.1f}"
    share = "-" if row.share_of_roof is None else f"{row.share_of_roof:.1%}"
    ms = row.ms_per_token
    spread = f"{ms['median']:.3f} ({ms['p10']:.3f} - {ms['p90']:.3f})"
    probe = "-" if row.share_of_probe is None else f"{row.share_of_probe:.1%}"
    megabytes, rate = row.weight_bytes_per_token / 1e6, row.bytes_per_s / 1e9
    return (
        f"{row.engine:<22}  {row.threads:7d}  {row.isa:<10}  {row.tok_per_s:6.1f}  {spread:<24}"
        f"  {row.prompt_tok_per_s:12.1f}  {megabytes:8.1f}  {rate:6.1f}  {roof:>9}  {share:>6}"
        f"  {probe:>8}"
    )


def _streams(row: Row) -> Iterator[str]:
    streams = row.streams_ns_per_token or {}
    total = sum(streams.values())
    parts = [f"{name} {ns / 1e3:.1f} us ({ns / total:.1%})" for name, ns in streams.items() if ns > 0]
    yield f"{_threads(row.threads)}, per token and worker: {', '.join(parts)}"
    prompt = row.settings["prompt"]
    kind = "real text" if prompt["source"] == "text" else "random tokens"
    if row.storage is not None:
        disk = row.storage
        yield (
            f"  from disk per token: {disk.asked_bytes_per_token / 1e6:.1f} MB asked, "
            f"{disk.device_bytes_per_token / 1e6:.1f} MB read; {disk.expert_hits_per_token:.1f} experts "
            f"were in memory; computation waited {disk.wait_share:.1%} of the time"
        )
    yield f"  prompt: {prompt['tokens']} tokens of {kind}; {row.rounds} rounds, {row.void} void"


def _ratio(ratio: Ratio) -> str:
    head = f"{ratio.against}, {_threads(ratio.threads)}, {ratio.what}: "
    if ratio.median is None:
        figure = "no valid round"
    else:
        interval = "" if ratio.low is None else f" [{ratio.low:.3f}, {ratio.high:.3f}]"
        figure = f"{ratio.median:.3f}x{interval}"
    a_a = "" if ratio.a_a is None else f", A/A [{ratio.a_a[0]:.3f}, {ratio.a_a[1]:.3f}]"
    tokens = "tokens equal" if ratio.tokens_equal else "tokens differ at near ties"
    if not ratio.same_weights:
        tokens = "the same values in another format"
    verdict = ratio.verdict + (f": {'; '.join(ratio.reasons)}" if ratio.reasons else "")
    return f"{head}{figure}{a_a}, {ratio.rounds} rounds, {ratio.void} void, {tokens}: {verdict}"


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"
