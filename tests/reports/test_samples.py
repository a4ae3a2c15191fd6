"""What trained models wrote: as it was recorded, and nothing when it was not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from claims.quality_cells import perplexity_cell
from claims.quality_series import read_series
from harness.check import check
from harness.evidence import Evidence
from harness.registry import parse_registry
from harness.results import Results
from harness.verdict import NotMeasurable, judge_check, to_json
from reports.render import page
from reports.samples import CHECK, samples
from tests.claims.made_series import remove, series_file

Data = dict[str, Any]
Load = Callable[[Data], Results]

ARMS = ("arch1", "arch2_4_combined", "arch5")
DECLARED = f"""
[[check]]
id = "{CHECK}"
claim = "3"
statement = "Made up."
metric = "made up"
unit = "perplexity"
kinds = ["derived"]
beyond = true
budget_s = {{ quick = 1 }}
""" + "".join(f'[[check.cells]]\nlabel = "{arm}"\n' for arm in ARMS)


def with_texts(data: Data, path: Path, edit: Callable[[Data], None] = lambda found: None) -> Data:
    """The sample with the perplexities of a made-up series in it."""
    text = data["registry"]["text"] + DECLARED
    series, last = read_series(series_file(path / "q.json", edit=edit)), data["checks"][-1]
    found: dict[str, Evidence | NotMeasurable] = {arm: perplexity_cell(series, arm) for arm in ARMS}
    record = {
        **{key: last[key] for key in ("started_ns", "finished_ns", "finished_utc")},
        **to_json(judge_check(parse_registry(text).check(CHECK), found)),
        "seq": last["seq"] + 1,
        "command": f"pytest claims/ --only {CHECK}",
        "limits": [],
    }
    return data | {"registry": data["registry"] | {"text": text}, "checks": [*data["checks"], record]}


def no_arch1(found: Data) -> None:
    remove(found, *(("arch1", seed) for seed in range(3)))


def test_each_text_stands_with_its_scale_and_how_it_was_drawn(data: Data, load: Load, tmp_path: Path) -> None:
    found = samples(load(with_texts(data, tmp_path)))
    assert found is not None
    assert found.prompt == "Once upon a time"
    assert found.scale == "preset tiny (d 128, 2.6 to 5.0 M weights), 2,000 steps, 2.0 M tokens seen"
    for part in ("q4_0", "at most 60 tokens", "temperature 0.7", "the 40 most probable", "scalar kernels"):
        assert part in found.how
    assert [(one.label, one.text) for one in found.texts] == [(arm, f"A king of {arm} .") for arm in ARMS]
    assert found.texts[0].words == "3 of its 4 words are in its training text"


def test_the_page_shows_texts_as_text(data: Data, load: Load, tmp_path: Path) -> None:
    def edit(found: Data) -> None:
        found["samples"][0]["text"] = '<script>alert("x")</script>\n\nsaid the king'

    results = load(with_texts(data, tmp_path, edit))
    whole = page(results, check(results.directory))
    assert "What the trained models write" in whole and "<script>alert" not in whole
    assert "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;\n\nsaid the king</blockquote>" in whole
    assert "Small models: preset tiny (d 128, 2.6 to 5.0 M weights), 2,000 steps" in whole
    assert "What the trained models write" not in page(load(data), check(results.directory))


def test_an_architecture_that_is_not_trained_yet_is_left_out(data: Data, load: Load, tmp_path: Path) -> None:
    found = samples(load(with_texts(data, tmp_path, no_arch1)))
    assert found is not None and [one.label for one in found.texts] == list(ARMS[1:])


@pytest.mark.parametrize(
    ("part", "key"), [("observations", "sample_words"), ("inputs", "sample prompt"), ("inputs", "scale")]
)
def test_nothing_is_shown_of_what_was_not_recorded(
    data: Data, load: Load, tmp_path: Path, part: str, key: str
) -> None:
    assert samples(load(data)) is None
    made = with_texts(data, tmp_path)
    for cell in made["checks"][-1]["cells"]:
        del cell["evidence"][part][key]
    assert samples(load(made)) is None
