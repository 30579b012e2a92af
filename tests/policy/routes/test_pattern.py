"""Patterns that other people wrote: matched in linear time, in the dialect of Linkerd's engine, or refused with a
clear error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

import pytest
import re2

from proxy.policy.routes.pattern import PATTERN_BYTES, Pattern, PatternError, Patterns


def shortest_s(call: Callable[[], object], times: int = 5) -> float:
    """The best of several runs, which a busy machine disturbs least."""
    found = []
    for _ in range(times):
        began_at = time.perf_counter()
        call()
        found.append(time.perf_counter() - began_at)
    return min(found)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        (r"/.*\.png", b"/"),
        (r"/([a-z]+/?)*admin", b"a"),
        (r"(a|a)*b", b"a"),
        (r"(a*)*c", b"a"),
        (r"(x+x+)+y", b"x"),
        (r"^(([a-z])+.)+[A-Z]([a-z])+$", b"a"),
    ],
)
def test_time_grows_with_the_text_and_no_faster(text: str, unit: bytes) -> None:
    """Row B6: a backtracking engine needs minutes for the second of these texts, and four times as long for twice the
    text. Here the time grows linearly.
    """
    pattern = Pattern(text)
    short, long = b"/" + unit * 3_000, b"/" + unit * 60_000
    assert not pattern.covers(short)
    assert not pattern.covers(long)
    assert shortest_s(lambda: pattern.covers(long)) < 0.1
    assert shortest_s(lambda: pattern.covers(long)) < 120 * max(shortest_s(lambda: pattern.covers(short)), 5e-6)


@pytest.mark.parametrize(
    ("text", "covered", "not_covered"),
    [
        (r"[[:alpha:]]+", b"abc", b"ab1"),
        (r"\pL+", "é".encode(), b"1"),
        (r"\p{Greek}+", "λ".encode(), b"l"),
        (r"\P{L}", b"1", b"a"),
        (r"(?P<name>a)b", b"ab", b"b"),
        (r"(?<name>a)b", b"ab", b"b"),
        (r"\x{41}\x42", b"AB", b"ab"),
        (r"(?i)abc", b"aBC", b"abd"),
        (r"(?i:a)b", b"Ab", b"AB"),
        (r"(?s).", b"\n", b""),
        (r".", b"a", b"\n"),
        (r"a{2,3}", b"aaa", b"a"),
        (r"\Aab\z", b"ab", b"b"),
        (r"[^]x]", b"a", b"]"),
        (r"[\w.-]+", b"a-b.c", b"a/b"),
        (r"[\s\S]*", b"any \n", None),
        (r"/users/\d+(\?.*)?", b"/users/12?a=b", b"/users/x"),
        (r"", b"", b"a"),
        (r"a|ab", b"a", b"ab"),
        (r"\/\-\.\{\}", b"/-.{}", b"x"),
    ],
)
def test_the_dialect(text: str, covered: bytes, not_covered: bytes | None) -> None:
    pattern = Pattern(text)
    assert pattern.covers(covered)
    assert not_covered is None or not pattern.covers(not_covered)


TOGETHER = [
    Pattern(text) for text in (r"/a/[0-9]+", r"/a/.*", "b", "/a|/ab", "(?i)/A/.*", "/é.*", "^/a/1$", "(a|b)*", "")
]


def test_patterns_together_name_each_that_covers() -> None:
    together, dice = Patterns(TOGETHER), Random(7)
    count = 0
    for _ in range(5000):
        value = b"".join(
            dice.choice([b"/a/", b"/", b"a", b"b", b"1", b"\xc3\xa9", b"\xff", b"\n", b"A"]) for _ in range(4)
        )
        value = value[: dice.randint(0, len(value))]
        likely = together.likely(value)
        covering = [place for place, one in enumerate(TOGETHER) if one.covers(value)]
        assert set(covering) <= set(likely) and len(likely) < len(TOGETHER), value
        count += len(covering)
    assert count > 1000


class TooLarge(list[bytes]):
    """A set of patterns that needs more memory than it may have cannot be compiled, or finds nothing."""

    def __init__(self, compiles: bool) -> None:
        super().__init__()
        self._compiles = compiles

    Add = list.append

    def Compile(self) -> None:
        if not self._compiles:
            raise re2.error("failed to compile Set")

    def Match(self, value: bytes) -> None:
        return None


@pytest.mark.parametrize("compiles", [True, False])
def test_patterns_that_are_too_large_together_are_tried_one_by_one(
    compiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(re2.Set, "FullMatchSet", lambda options: TooLarge(compiles))
    assert list(Patterns(TOGETHER).likely(b"/a/1")) == list(range(len(TOGETHER)))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (r"a(?=b)", "invalid perl operator: (?="),
        (r"a(?!b)", "invalid perl operator: (?!"),
        (r"(?<=a)b", "(?<"),
        (r"(a)\1", r"unrecognized escape sequence: \1"),
        (r"a\Z", r"unrecognized escape sequence: \Z"),
        (r"\Qa.b\E", r"unrecognized escape sequence: \Q"),
        (r"a\Cb", r"unrecognized escape sequence: \C"),
        (r"\<word\>", r"unrecognized escape sequence: \<"),
        (r"\b{start}a", "word boundaries with a name are not supported"),
        (r"a{", "repetition quantifier expects a valid decimal"),
        (r"a{,3}", "repetition quantifier expects a valid decimal"),
        (r"[a-z&&[^q]]", "the class operator && is not supported"),
        (r"[a-z--q]", "the class operator -- is not supported"),
        (r"[a~~b]", "the class operator ~~ is not supported"),
        (r"[a[bc]]", "a class within a class is not supported"),
        (r"(", "missing )"),
        (r"[", "missing ]"),
        (r"a**", "bad repetition operator: **"),
        (r"(a{1000}){1000}", "invalid repetition size"),
        ("\ud800", "surrogates not allowed"),
        ("a" * (PATTERN_BYTES + 1), f"longer than {PATTERN_BYTES} bytes"),
        ("[" * PATTERN_BYTES, "missing ]"),
        ("(" * PATTERN_BYTES, ""),
    ],
)
def test_what_the_engines_read_differently_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(PatternError) as error:
        Pattern(text)
    assert why in str(error.value)
    assert text[:40].encode(errors="replace").decode() in str(error.value).replace("\\\\", "\\") or text == "\ud800"


def test_equal_by_text() -> None:
    assert Pattern("a+") == Pattern("a+")
    assert hash(Pattern("a+")) == hash(Pattern("a+"))
    assert Pattern("a+") != Pattern("a*")
    assert Pattern("a+") != "a+"
    assert repr(Pattern("a+")) == "Pattern('a+')"


@pytest.mark.parametrize("part", ["[", "[:a", r"[\a", "[a", "[^]", "[[:a:"])
def test_brackets_that_never_end_are_refused_in_linear_time(part: str) -> None:
    """Each bracket would otherwise be followed to the end of the text: more than 200 ms for the longest pattern."""
    text = part * (PATTERN_BYTES // len(part))
    took_s = []
    for _ in range(3):
        began_at = time.process_time()
        with pytest.raises(PatternError):
            Pattern(text)
        took_s.append(time.process_time() - began_at)
    assert min(took_s) < 0.03
