"""The reference of the C interface, from the comments of its header."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tools.docs.markdown import code, escaped, fence, table

_COMMENT = r"/\*.*?\*/"
_ITEM = re.compile(
    rf"""
    /\*\s----\s(?P<section>.+?)\s-+\s\*/
    | (?P<comment>{_COMMENT})
    | (?:typedef\s)?enum\s(?P<enum>\w*)\s?\{{(?P<body>.*?)\}}[^;]*;
    | typedef\sstruct\s(?P<handle>\w+)\s\w+;
    | CFLOW_API\s(?P<function>(?:{_COMMENT}|[^;])*?);
    """,
    re.DOTALL | re.VERBOSE,
)
_TRAILING = re.compile(rf"[ \t]*({_COMMENT})", re.DOTALL)
_CONSTANT = re.compile(
    rf"(?P<name>\w+)\s*=\s*(?P<value>[^,/]+?)\s*(?:,|$|(?=/))|(?P<note>{_COMMENT})", re.DOTALL
)
_WIDTH = 90
_FIRST_SECTION = "/* ---- status "


@dataclass
class Declaration:
    """An enumeration, a handle or a function, and what the header says of it. constants: (name, value, text)
    of an enumeration, with empty name and value for a remark among them.
    """

    name: str
    text: str
    comment: str = ""
    constants: list[tuple[str, str, str]] = field(default_factory=list)


@dataclass
class Section:
    """A part of the header under its title."""

    title: str
    declarations: list[Declaration] = field(default_factory=list)


def c_reference(header: str) -> str:
    """Sections, enumerations and functions in the order of the header."""
    return "\n".join(_page(sections(header)))


def sections(header: str) -> list[Section]:
    """What the header declares. A comment belongs to what follows it up to the next empty line."""
    text = header[header.index(_FIRST_SECTION) : header.rindex("#ifdef __cplusplus")]
    found: list[Section] = []
    comment, position = "", 0
    while (match := _ITEM.search(text, position)) is not None:
        if "\n\n" in text[position : match.start()]:
            comment = ""
        position = match.end()
        if match["section"]:
            found.append(Section(match["section"]))
        elif match["comment"]:
            comment = _words(match["comment"])
        else:
            trailing = _TRAILING.match(text, position)
            if trailing:
                position = trailing.end()
            own = _words(trailing[1]) if trailing else ""
            declaration = _declaration(match)
            declaration.comment = "\n\n".join(part for part in (comment, own) if part)
            found[-1].declarations.append(declaration)
    return found


def _declaration(match: re.Match[str]) -> Declaration:
    if match["function"]:
        text = " ".join(match["function"].split()) + ";"
        name = re.search(r"(cflow_\w+)\(", text)
        assert name is not None, text
        return Declaration(name[1], _broken(text))
    if match["handle"]:
        return Declaration(match["handle"], match[0])
    return Declaration(match["enum"], "", constants=list(_constants(match["body"])))


def _broken(text: str) -> str:
    """A declaration over as many lines as it needs, broken behind commas."""
    lines = [""]
    for piece in re.split(r"(?<=, )", text):
        if len(lines[-1] + piece) > _WIDTH:
            lines[-1] = lines[-1].rstrip()
            lines.append("    ")
        lines[-1] += piece
    return "\n".join(lines)


def _constants(body: str) -> Iterator[tuple[str, str, str]]:
    """Each constant with the comment behind it; a second comment in a row is a remark."""
    row: tuple[str, str, str] | None = None
    for match in _CONSTANT.finditer(body):
        if match["note"] and row is not None and not row[2]:
            row = (row[0], row[1], _words(match["note"]))
            continue
        if row is not None:
            yield row
        row = ("", "", _words(match["note"])) if match["note"] else (match["name"], match["value"], "")
    if row is not None:
        yield row


def _words(comment: str) -> str:
    """A comment without its marks. Paragraphs stay apart."""
    inner = re.sub(r"^\s*\*? ?", "", comment[2:-2], flags=re.MULTILINE)
    return "\n\n".join(" ".join(part.split()) for part in inner.split("\n\n") if part.strip())


def _page(found: list[Section]) -> Iterator[str]:
    for section in found:
        yield f"## {section.title[0].upper()}{section.title[1:]}\n"
        for one in section.declarations:
            if one.name:
                yield f"### {one.name}\n"
            if one.text:
                yield fence(one.text, "c")
            for paragraph in filter(None, one.comment.split("\n\n")):
                yield escaped(paragraph) + "\n"
            if one.constants:
                rows = ((code(n) if n else "", escaped(v), escaped(text)) for n, v, text in one.constants)
                yield table(("Constant", "Value", "Meaning"), rows)
