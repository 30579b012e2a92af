"""What a docstring or comment cites from docs/linkerd exists: the file, and the section by its number."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOTES = ROOT / "docs" / "linkerd"
CITING = sorted(
    path
    for path in (*(ROOT / "proxy").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "docs").glob("*.md"))
    if path != Path(__file__)
)

_CITATION = re.compile(r"docs/linkerd/([\w-]+\.md)(?:,\s+sections?\s+([\d., \nand]*\d)(?:\s+to\s+([\d.]*\d))?)?")
_HEADING = re.compile(r"^##+ (\d+(?:\.\d+)?)\.? ", re.MULTILINE)


def cited(text: str) -> Iterator[tuple[str, str]]:
    """Each file that the text cites with each of its sections; the section is empty where none is named.

    Comment signs and indentation count as space, so that a citation may be broken over lines."""
    plain = re.sub(r"\n\s*#? *", "\n", text)
    for file, sections, last in _CITATION.findall(plain):
        numbers = re.findall(r"\d+(?:\.\d+)?", f"{sections} {last}")
        for number in numbers or [""]:
            yield file, number


def sections_of(file: str) -> set[str]:
    return {"", *_HEADING.findall((NOTES / file).read_text())}


def faults(text: str) -> list[str]:
    """Citations in the text that docs/linkerd does not have."""
    found = []
    for file, section in cited(text):
        if not (NOTES / file).is_file():
            found.append(f"there is no docs/linkerd/{file}")
        elif section not in sections_of(file):
            found.append(f"docs/linkerd/{file} has no section {section}")
    return found


def test_what_is_cited_exists() -> None:
    citing = {path: list(cited(path.read_text())) for path in CITING}
    assert sum(len(found) for found in citing.values()) > 100, "the search finds nothing"
    assert not [f"{path}: {fault}" for path in CITING for fault in faults(path.read_text())]


def test_a_file_or_section_that_is_missing_is_named() -> None:
    assert faults("docs/linkerd/nowhere.md") == ["there is no docs/linkerd/nowhere.md"]
    assert faults("docs/linkerd/inbound.md, section 99") == ["docs/linkerd/inbound.md has no section 99"]


def test_citations_are_found_in_every_form() -> None:
    text = """(docs/linkerd/inbound.md, section 11; docs/linkerd/outbound.md,
    section 9.3) docs/linkerd/a.md, sections 7.3 and 10). docs/linkerd/b.md, sections 2, 3 and 5
    # docs/linkerd/c.md, sections
    # 1 to 4. docs/linkerd/metrics.md."""
    assert list(cited(text)) == [
        *[("inbound.md", "11"), ("outbound.md", "9.3"), ("a.md", "7.3"), ("a.md", "10")],
        *[("b.md", "2"), ("b.md", "3"), ("b.md", "5"), ("c.md", "1"), ("c.md", "4"), ("metrics.md", "")],
    ]
    assert {"5", "7.1", "9.6"} <= sections_of("outbound.md") and "7.9" not in sections_of("outbound.md")


def test_nothing_cites_notes_that_are_not_in_the_repository() -> None:
    absent = re.compile(r"\breference:? [a-z-]+,? sections? \d|[;(] ?golden:")
    assert not [str(path) for path in CITING if absent.search(path.read_text())]
