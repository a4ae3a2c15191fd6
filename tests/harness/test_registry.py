"""claims.toml: what loads, and which key every broken rule names."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from harness.errors import RegistryError
from harness.kinds import CLAIM_IDS
from harness.registry import load_registry, parse_registry
from tests.harness.make_sample import SAMPLE_DIR

TEXT = (SAMPLE_DIR / "claims.toml").read_text(encoding="utf-8")


def test_loads_every_field() -> None:
    registry = parse_registry(TEXT)
    assert tuple(claim.id for claim in registry.claims) == CLAIM_IDS
    check = registry.check("6.hint")
    assert (check.claim, check.paper, check.margin, check.guard) == ("6", 1.0, 0.03, 0.02)
    assert check.target == (-math.inf, 1.03)
    assert check.paper_finding == registry.claim("6").paper_finding
    assert check.budget_s == {"quick": 30.0, "full": 60.0, "paper": 60.0}
    assert [cell.label for cell in check.cells] == [""]
    assert registry.text == TEXT


def test_cells_inherit_and_set_the_confidence() -> None:
    check = parse_registry(TEXT).check("7.law")
    assert [(cell.label, cell.unit, cell.target) for cell in check.cells] == [
        ("(0,0) over (1,2)", "ratio", (1.999, 2.001)),
        ("arch1", "MiB", (8.995, 9.005)),
        ("arch2_4_combined", "MiB", (4.495, 4.505)),
    ]
    assert check.confidence == pytest.approx(1 - 0.05 / 3)


def test_cells_inherit_and_set_their_repetitions() -> None:
    text = TEXT.replace('id = "7.law"', 'id = "7.law"\nrepetitions = 6')
    text = text.replace('label = "arch1"', 'label = "arch1"\nrepetitions = 11')
    assert [cell.repetitions for cell in parse_registry(text).check("7.law").cells] == [6, 11, 6]
    assert [cell.repetitions for cell in parse_registry(TEXT).check("7.law").cells] == [None] * 3


@pytest.mark.parametrize("found", ["1", "true", "2.0", '"8"'])
def test_repetitions_are_a_whole_number_that_gives_an_interval(found: str) -> None:
    text = TEXT.replace('id = "7.law"', f'id = "7.law"\nrepetitions = {found}')
    with pytest.raises(RegistryError, match=r"check\[7\.law\]\.repetitions: .*a whole number, at least 2"):
        parse_registry(text)


def test_cells_inherit_and_set_their_rounds() -> None:
    check = parse_registry(TEXT).check("6.hint")
    assert [check.rounds(profile) for profile in ("quick", "paper", "smoke")] == [20, 20, None]
    with pytest.raises(RegistryError, match=r"check\[6\.hint\]: no cell 'AVX2'"):
        check.rounds("quick", "AVX2")
    shared = "rounds = { smoke = 12, quick = 13, full = 14, paper = 15 }"
    own = "rounds = { smoke = 22, quick = 23, full = 24, paper = 25 }"
    text = TEXT.replace('id = "7.law"', f'id = "7.law"\n{shared}')
    text = text.replace('label = "arch1"', f'label = "arch1"\n{own}')
    law = parse_registry(text).check("7.law")
    assert [law.rounds("quick", cell.label) for cell in law.cells] == [13, 23, 13]
    assert parse_registry(TEXT).check("7.law").rounds("quick", "arch1") is None


@pytest.mark.parametrize(
    "found",
    [
        "20",
        "{ quick = 20 }",
        "{ quick = 20, full = 20, paper = 20, smoke = 20 }",
        "{ quick = 11, full = 20, paper = 20 }",
        "{ quick = 20.0, full = 20, paper = 20 }",
        "{ quick = true, full = 20, paper = 20 }",
    ],
)
def test_rounds_are_declared_for_every_profile(found: str) -> None:
    text = TEXT.replace("rounds = { quick = 20, full = 20, paper = 20 }", f"rounds = {found}")
    with pytest.raises(RegistryError, match=r"check\[6\.hint\]\.rounds: found .*allowed: "):
        parse_registry(text)


def test_budget_is_the_sum_over_the_profile() -> None:
    registry = parse_registry(TEXT)
    assert registry.budget_s("smoke") == 1 + 2 + 1 + 1 + 1


def test_unknown_ids_are_named_with_those_that_exist() -> None:
    registry = parse_registry(TEXT)
    with pytest.raises(RegistryError, match=r"'9'.*end_to_end"):
        registry.claim("9")
    with pytest.raises(RegistryError, match=r"'7.lwa'.*7\.law"):
        registry.check("7.lwa")


HINT = 'id = "6.hint"\nclaim = "6"'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (HINT, 'id = "hint"\nclaim = "6"', r"check\[hint\]\.id: found 'hint'"),
        (HINT, 'id = "6.hint"\nclaim = "9"', r"check\[6\.hint\]\.claim: found '9'"),
        (HINT, HINT + "\nfirst_screen = true", r"check\[6\.hint\]\.first_screen: found True"),
        (HINT, HINT + "\nbeyonde = true", r"check\[6\.hint\]\.beyonde: unknown key"),
        (HINT, 'id = "7.law"\nclaim = "6"', r"check\[7\.law\]\.id: used twice"),
        ("target = [-inf, 1.03]", "target = [1.03, 1.0]", r"check\[6\.hint\]\.target: found \[1\.03, 1\.0\]"),
        ("target = [-inf, 1.03]", "target = [-inf, inf]", r"check\[6\.hint\]\.target"),
        ("target = [-inf, 1.03]", "target = [nan, 1.0]", r"check\[6\.hint\]\.target"),
        ("target = [-inf, 1.03]", "target = 1.0", r"check\[6\.hint\]\.target"),
        ("target = [-inf, 1.03]\n", "", r"check\[6\.hint\]\.target: missing"),
        (
            "guard = 0.02",
            "guard = 0.04",
            r"check\[6\.hint\]\.guard: found 0\.04, allowed: at most the margin",
        ),
        ("margin = 0.03", 'margin = "3 %"', r"check\[6\.hint\]\.margin: found '3 %'"),
        ("margin = 0.03", "margin = 1.5", r"check\[6\.hint\]\.margin"),
        (
            'kinds = ["simulated"]',
            'kinds = ["guessed"]',
            r"check\[2\.l1\.simulated\]\.kinds: found \['guessed'\]",
        ),
        ('kinds = ["simulated"]', "kinds = []", r"check\[2\.l1\.simulated\]\.kinds"),
        ('needs = ["valgrind"]', 'needs = ["Valgrind 3"]', r"check\[2\.l1\.simulated\]\.needs"),
        ("budget_s = { quick = 10 }", "budget_s = { fast = 10 }", r"budget_s\.fast: unknown profile"),
        ("budget_s = { quick = 10 }", "budget_s = { quick = 0 }", r"budget_s\.quick: found 0"),
        ("budget_s = { quick = 10 }", "budget_s = { }", r"budget_s: empty"),
        ('label = "arch1"', 'label = "arch2_4_combined"', r"cells\[2\]\.label: found 'arch2_4_combined'"),
        ('title = "End to end"', 'title = ""', r"claim\[8\]\.title: found ''"),
        ('title = "End to end"', "", r"claim\[8\]\.title: missing"),
        ('id = "quality"', 'id = "qualities"', r"claims\.toml\.claim: found ids"),
        ("paper = 20.0", "paper = true", r"check\[0\.regime\]\.paper: found True"),
        ('[[claim]]\nid = "1"', 'version = 1\n[[claim]]\nid = "1"', r"claims\.toml\.version: unknown key"),
        ("beyond = true\nfirst_screen", "beyond = 1\nfirst_screen", r"check\[7\.path\]\.beyond: found 1"),
    ],
)
def test_broken_rules_name_the_key(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(RegistryError, match=message):
        parse_registry(TEXT.replace(old, new, 1))


def test_claim_built_must_agree_with_its_checks() -> None:
    claim_8 = 'paper_finding = "inconclusive"\nbuilt = true'
    with pytest.raises(RegistryError, match=r"claim\[8\]\.built: false, but check 8\.readahead"):
        parse_registry(TEXT.replace(claim_8, claim_8.replace("true", "false")))
    claim_5 = 'paper_finding = "proven by construction"\nbuilt = false'
    with pytest.raises(RegistryError, match=r"claim\[5\]\.built: true, but no check"):
        parse_registry(TEXT.replace(claim_5, claim_5.replace("false", "true")))


def test_file_errors_are_told(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match=r"claims\.toml: cannot be read"):
        load_registry(tmp_path / "claims.toml")
    (tmp_path / "claims.toml").write_text("[[claim]\n")
    with pytest.raises(RegistryError, match="not valid TOML"):
        load_registry(tmp_path / "claims.toml")
