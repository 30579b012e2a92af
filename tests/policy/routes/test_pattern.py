"""Patterns that other people wrote: matched in linear time, in the dialect of Linkerd's engine, or refused with a
clear error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

import pytest
import re2

from proxy.core import limits
from proxy.core.loop.effort import Effort, TooCostlyError
from proxy.policy.routes.pattern import TOGETHER_SIZES, Pattern, Patterns, grouped
from proxy.policy.routes.program import PatternError, held


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
        likely = together.likely(value, Effort())
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
    assert list(Patterns(TOGETHER).likely(b"/a/1", Effort())) == [0, 1, 3, 4, 5, 6, 7, 8]


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
        ("a" * (limits.PATTERN_BYTES + 1), f"longer than {limits.PATTERN_BYTES} bytes"),
        ("[" * limits.PATTERN_BYTES, "missing ]"),
        ("(" * limits.PATTERN_BYTES, ""),
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
    text = part * (limits.PATTERN_BYTES // len(part))
    took_s = []
    for _ in range(3):
        began_at = time.process_time()
        with pytest.raises(PatternError):
            Pattern(text)
        took_s.append(time.process_time() - began_at)
    assert min(took_s) < 0.03


def repeated(unit: str, prefix: str = "") -> str:
    """A pattern of nearly limits.PATTERN_BYTES."""
    return prefix + unit * ((limits.PATTERN_BYTES - 1 - len(prefix.encode())) // len(unit.encode()))


COSTLY = {
    "letters": (repeated(r"\pL"), "1365 Unicode classes where 64 may be"),
    "letters in classes": (repeated("[a-zà-ü\\pL]", "(?i)"), "Unicode classes where 64 may be"),
    "what is no letter": (repeated(r"[^\pL\d]"), "Unicode classes where 64 may be"),
    "letters that may be missing": (repeated(r"\pL?"), "Unicode classes where 64 may be"),
    "letters of a count": (r"\pL{1000}", "pattern too large"),
    "a count of a count": ("(?:" + "a" * 1000 + "){1000}", "pattern too large"),
    "any octets": (repeated(".{1000}"), "pattern too large"),
    "copies that may be missing": (repeated("a{0,1000}"), "optional parts where 2000 may be"),
    "optional parts that are copied": ("(?:" + "a?b{0,9}" * 50 + "){1,100}", "optional parts where 2000 may be"),
    "empty alternatives": ("(?:a|){1000}" * 3, "3000 optional parts where 2000 may be"),
    "optional parts of groups": (("(?:" + "a?" * 200 + "){9}") * 3, "optional parts where 2000 may be"),
}


@pytest.mark.parametrize("kind", COSTLY)
def test_expressions_that_would_hold_the_loop_are_refused_with_the_reason(kind: str) -> None:
    """Some of these 4 KiB would take 0.1 to 1.6 s; what is refused costs less than what is taken."""
    text, why = COSTLY[kind]
    took_s = []
    for _ in range(3):
        began_at = time.process_time()
        with pytest.raises(PatternError, match=why):
            Pattern(text)
        took_s.append(time.process_time() - began_at)
    assert min(took_s) < 0.03


LARGEST = {
    "dots": "." * 4000, "letters": r"\pL" * 30, "classes": r"\p{Lu}" * 64, "alternatives": "|".join([r"\pL"] * 64),
    "any case": "(?i)" + "k" * 4000, "ranges": repeated("[Ā-ǿ]", "(?i)"), "optional": "a?" * 2000,
    "counts": ".{0,500}" * 4, "exact counts": ".{1000}" * 2, "letters of a count": r"\pL{20}", "Greek": r"\p{Greek}" * 60,
    "groups": repeated("(a|b)"), "words": "|".join(f"word{number}" for number in range(400)),
    "words in any case": "(?i)" + "|".join(f"wört{number}k" for number in range(300)), "negated": repeated("[^à]"),
}  # fmt: skip


@pytest.mark.parametrize("kind", LARGEST)
def test_the_most_that_is_taken_is_compiled_soon_and_says_what_it_cost(kind: str) -> None:
    """Measured on one core at 2.5 GHz: 30 ms at worst, 0.4 ms for each part that it counts for."""
    took_s = []
    for again in range(3):
        began_at = time.process_time()
        pattern = Pattern(f"{again}" + LARGEST[kind])
        took_s.append(time.process_time() - began_at)
    assert min(took_s) < 0.1
    assert min(took_s) < 0.002 + 0.0006 * pattern.parts


@pytest.mark.parametrize(
    "text",
    [
        r"/api/v[0-9]+/users/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/[^/?#]+(\?.*)?",
        r"[\w.-]{1,255}", r"[\pL\d_ -]{1,32}", r"(?i)^(.*/)?[a-zà-ü0-9._~!$&'()*+,;=:@%-]{1,128}\.(?:png|jpe?g|gif|webp)$",
        r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.){1,10}[a-z]{2,63}", r".{0,200}", "/(" + "|".join(f"team-{number}" for number in range(300)) + ")/.*",
        r"^((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(25[0-5]|2[0-4]\d|1?\d?\d)$", r"\p{Greek}{1,64}|\p{Han}{1,64}",
    ],
)  # fmt: skip
def test_what_people_write_is_taken(text: str) -> None:
    assert Pattern(text).parts <= 200


def test_equal_patterns_share_a_program_and_give_it_back() -> None:
    before = held.bytes
    first, second = Pattern("/shared/[a-z]+"), Pattern("/shared/[a-z]+")
    one = held.bytes - before
    assert 4096 < one < 8192 and first._program is second._program
    third = Pattern("/alone/.{100}")
    assert held.bytes - before > 2 * one
    del first, second, third
    assert held.bytes == before


def test_what_all_patterns_hold_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PROGRAMS_BYTES", held.bytes + 100_000)
    taken: list[Pattern] = []
    with pytest.raises(PatternError, match=r"one too many: all of this process hold .* already: '.\{100\}x"):
        for number in range(100):
            taken.append(Pattern(".{100}x" + str(number)))
    assert 3 < len(taken) < 20
    assert Pattern(taken[0].text).covers(b"a" * 100 + b"x0"), "what is there already costs nothing"
    taken.clear()
    assert Pattern(".{100}y").size


@pytest.mark.parametrize(
    ("text", "size"),
    [(".*foo.{0,100}bar", 3_000), (".*[ab]a[ab]{900}c", 3_000), ("/a", 65_536), ("(a*)" * 300, 65_536)],
)
def test_a_text_may_be_as_long_as_the_pattern_allows(text: str, size: int) -> None:
    """RE2 builds a state for each octet of the second text, of as many instructions as the count says. To follow the groups
    of the last would cost ten times as much as anything else.
    """
    pattern = Pattern(text)
    value = bytes(Random(1).choices(b"fo" if "a*" not in text else b"a", k=size))
    began_at = time.thread_time()
    pattern.covers(value)
    pattern.occurs_in(value)
    assert time.thread_time() - began_at < 0.2
    too_long = b"a" * (limits.MATCH_STEPS // pattern.size + 1)
    for ask in (pattern.covers, pattern.occurs_in):
        with pytest.raises(TooCostlyError, match="could take too long on so long a text"):
            ask(too_long)


def test_a_text_that_is_long_for_all_patterns_together_is_tried_on_those_that_it_begins_like() -> None:
    """Together they would cost as much at worst as all of them have instructions, for each octet."""
    patterns = [Pattern(f"/team-{number}/.*") for number in range(200)]
    together = Patterns(patterns)
    short, long, longest = b"/team-7/a", b"/team-7/" + b"a" * 5_000, b"/team-7/" + b"a" * 60_000
    assert len(long) * sum(one.size for one in patterns) > limits.MATCH_STEPS
    for value in (short, long, longest):
        assert together.likely(value, Effort()) == [7] and patterns[7].covers(value)


def test_patterns_are_put_together_until_they_are_large_enough() -> None:
    assert grouped([]) == []
    assert grouped([100]) == [slice(0, 1)]
    assert grouped([TOGETHER_SIZES, 1, 1]) == [slice(0, 1), slice(1, 3)]
    assert [one.stop - one.start for one in grouped([30] * 1200)] == [546, 546, 108]
