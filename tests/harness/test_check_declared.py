"""The second opinion's own reading of claims.toml: what it takes, and what it names of the rest."""

from __future__ import annotations

import re

import pytest

from harness.check_declared import read_declared

CLAIM = '[[claim]]\nid = "1"\ntitle = "Experts"\nbuilt = true\n'
CHECK = """[[check]]
id = "1.a"
claim = "1"
unit = "ratio"
kinds = ["timed", "counted"]
budget_s = { quick = 1 }
"""
CELL = '[[check.cells]]\nlabel = "x"\n'


def test_claims_and_checks_come_in_their_order() -> None:
    claims, checks = read_declared(CLAIM + CLAIM.replace('"1"', '"0"').replace("true", "false") + CHECK)
    assert list(claims.items()) == [("1", ("Experts", True)), ("0", ("Experts", False))]
    assert [check_id for check_id, _ in checks] == ["1.a"]
    assert checks[0][1]["kinds"] == ["timed", "counted"]


@pytest.mark.parametrize("line", ["[[claim]]", "[[check]]"])
def test_a_list_that_is_missing_is_named(line: str) -> None:
    text = (CLAIM + CHECK).replace(line, line.replace("c", "d"))
    with pytest.raises(ValueError, match=f"^claims.toml.{line.strip('[]')}: missing$"):
        read_declared(text)


@pytest.mark.parametrize("place", ["", CELL])
@pytest.mark.parametrize(
    "line",
    [
        "paper = 7",
        "paper = 7.5",
        f"paper = {(1 << 1023) - 1}",
        "paper = 1.7e308",
        "target = [-inf, 2]",
        "target = [0, inf]",
        "repetitions = 5",
        "rounds = { quick = 12, full = 40 }",
    ],
)
def test_what_a_check_or_a_cell_may_say(place: str, line: str) -> None:
    read_declared(CLAIM + CHECK + place + line + "\n")


@pytest.mark.parametrize(
    "more",
    [
        "guard = 0\n",
        "guard = 0.5\n",
        'margin = 0.1\npositive_control = "warm"\n',
        "built = false\n",
        "beyond = true\n",
        CELL + 'unit = "ms"\n',
    ],
)
def test_what_one_of_them_may_say(more: str) -> None:
    read_declared(CLAIM + CHECK + more)


@pytest.mark.parametrize("place", ["", CELL])
@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("paper = true", "paper: found True"),
        ("paper = inf", "paper: found inf"),
        (f"paper = {1 << 1023}", f"paper: found {1 << 1023}"),
        (f"paper = {-(1 << 1023)}", f"paper: found {-(1 << 1023)}"),
        ('paper = "7"', "paper: found '7'"),
        ("repetitions = 5.0", "repetitions: found 5.0"),
        ("repetitions = true", "repetitions: found True"),
        ("rounds = 12", "rounds: found 12"),
        ("rounds = { quick = 12, full = true }", "rounds: found {'quick': 12, 'full': True}"),
        ("target = 1", "target: found 1"),
        ("target = [1]", "target: found [1]"),
        ("target = [1, 2, 3]", "target: found [1, 2, 3]"),
        ("target = [0, nan]", "target: found [0, nan]"),
        ("target = [true, 1]", "target: found [True, 1]"),
    ],
)
def test_what_neither_may_say(place: str, line: str, fault: str) -> None:
    where = "check[0].cells[0]" if place else "check[0]"
    with pytest.raises(ValueError, match=f"^{re.escape(f'{where}.{fault}'[:200])}"):
        read_declared(CLAIM + CHECK + place + line + "\n")


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('id = "1"', "id = 1", "claim[0].id: found 1"),
        ('title = "Experts"\n', "", "claim[0].title: missing"),
        ("built = true", "built = 1", "claim[0].built: found 1"),
        ('id = "1.a"\n', "", "check[0].id: missing"),
        ('claim = "1"\n', "", "check[0].claim: missing"),
        ('unit = "ratio"\n', "", "check[0].unit: missing"),
        ('kinds = ["timed", "counted"]\n', "", "check[0].kinds: missing"),
        ('kinds = ["timed", "counted"]', "kinds = []", "check[0].kinds: found []"),
        ('kinds = ["timed", "counted"]', 'kinds = "timed"', "check[0].kinds: found 'timed'"),
        ('kinds = ["timed", "counted"]', 'kinds = ["timed", 1]', "check[0].kinds: found ['timed', 1]"),
        ("budget_s = { quick = 1 }", "budget_s = 1", "check[0].budget_s: found 1"),
        ("budget_s = { quick = 1 }\n", "", "check[0].budget_s: missing"),
        ("[[check]]", "[[check]]\nbuilt = 0", "check[0].built: found 0"),
        ("[[check]]", '[[check]]\nbeyond = "no"', "check[0].beyond: found 'no'"),
        ("[[check]]", "[[check]]\nguard = -0.1", "check[0].guard: found -0.1"),
        ("[[check]]", "[[check]]\nmargin = true", "check[0].margin: found True"),
        ("[[check]]", "[[check]]\npositive_control = 1\nmargin = 1", "check[0].positive_control: found 1"),
        ("[[check]]", '[[check]]\npositive_control = "warm"', "check[0].margin: missing"),
        ("[[check]]", "[[check]]\ncells = 3", "check[0].cells: found 3"),
        ("[[check]]", "[[check]]\ncells = [1]", "check[0].cells: found [1]"),
        ("[[check]]", "[[check]]\ncells = [{}]", "check[0].cells[0].label: missing"),
        ("[[check]]", '[[check]]\ncells = [{ label = "x", unit = 1 }]', "check[0].cells[0].unit: found 1"),
        ("[[claim]]", "claim = 1\n[[other]]", "claims.toml.claim: found 1"),
        ("[[check]]", "x = " + 2000 * "[" + 2000 * "]" + "\n[[check]]", "nested too deeply"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, fault: str) -> None:
    text = (CLAIM + CHECK).replace(old, new, 1)
    with pytest.raises(ValueError, match=f"^{re.escape(fault)}$"):
        read_declared(text)


def test_the_second_one_is_named_by_its_place() -> None:
    with pytest.raises(ValueError, match=r"^check\[1\]\.unit: missing$"):
        read_declared(CLAIM + CHECK + CHECK.replace('unit = "ratio"\n', ""))
    with pytest.raises(ValueError, match=r"^claim\[1\]\.built: missing$"):
        read_declared(CLAIM + CLAIM.replace("built = true\n", "") + CHECK)


def test_what_is_shown_of_a_value_is_short() -> None:
    with pytest.raises(ValueError) as caught:
        read_declared(CLAIM + CHECK.replace("quick = 1", "").replace("{  }", '"' + 500 * "x" + '"'))
    assert str(caught.value) == "check[0].budget_s: found '" + 199 * "x"
