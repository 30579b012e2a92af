"""Shares over time as a picture: a row for each rate, a column for each policy, the time of the hang marked."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Final

from bench.balancing.simulation import NAMES, Outcome, Scene

_COLORS: Final = ("#2b6cb0", "#38a169", "#dd6b20", "#c53030")
_WIDTH: Final = 250
_HEIGHT: Final = 110
_LEFT: Final = 96
_TOP: Final = 84
_ACROSS: Final = 36
"""Between two columns."""
_BELOW: Final = 78
"""Between two rows: the times and two lines of figures."""
_TIMES_S: Final = 60.0
"""Between two marks of the time."""
_REQUESTS: Final = 20
"""So many at least make one point of the picture: of fewer the shares are noise."""


def svg(found: Mapping[float, Mapping[str, Outcome]], scene: Scene, how: str = "simulated") -> str:
    names = list(next(iter(found.values())))
    width = _LEFT + len(names) * (_WIDTH + _ACROSS)
    height = _TOP + len(found) * (_HEIGHT + _BELOW)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="18" font-size="14">Share of the requests that each endpoint gets, over {scene.duration_s:.0f} s ({how})</text>',
    ]
    x = 8
    for place, name in enumerate(NAMES):
        said = (
            name
            if name.endswith("ms")
            else f"5 ms, but answers nothing from {scene.hang[0]:.0f} s to {scene.hang[1]:.0f} s (dashed lines)"
        )
        parts.append(f'<rect x="{x}" y="29" width="12" height="12" fill="{_COLORS[place]}"/>')
        parts.append(f'<text x="{x + 17}" y="40">{said}</text>')
        x += 90
    parts.append(f'<text x="8" y="{_TOP - 8}" fill="#555">requests</text>')
    for column, name in enumerate(names):
        parts.append(f'<text x="{_LEFT + column * (_WIDTH + _ACROSS)}" y="{_TOP - 8}" font-weight="bold">{name}</text>')
    for row, (rate, outcomes) in enumerate(found.items()):
        y = _TOP + row * (_HEIGHT + _BELOW)
        parts.append(f'<text x="8" y="{y + _HEIGHT / 2 + 4}" font-weight="bold">{rate:,g}/s</text>')
        for share in (0.0, 0.5, 1.0):
            at = y + _HEIGHT * (1 - share) + 4
            parts.append(
                f'<text x="{_LEFT - 5}" y="{at}" font-size="10" fill="#555" text-anchor="end">{share:.0%}</text>'
            )
        for column, outcome in enumerate(outcomes.values()):
            parts.extend(_panel(outcome, scene, rate, _LEFT + column * (_WIDTH + _ACROSS), y))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _points(outcome: Outcome, scene: Scene, rate: float) -> list[list[float]]:
    """The shares, of so many windows together that they mean something."""
    together = ceil(_REQUESTS / (rate * scene.window_s))
    groups = [outcome.shares[at : at + together] for at in range(0, len(outcome.shares), together)]
    return [[sum(one) / len(group) for one in zip(*group, strict=True)] for group in groups]


def _panel(outcome: Outcome, scene: Scene, rate: float, x: int, y: int) -> list[str]:
    points = _points(outcome, scene, rate)
    step = _WIDTH / len(points)
    bottoms = [0.0] * len(points)
    parts: list[str] = []
    for place in range(len(NAMES)):
        tops = [bottom + shares[place] for bottom, shares in zip(bottoms, points, strict=True)]
        there = _stairs(tops, x, y, step)
        back = reversed(_stairs(bottoms, x, y, step))
        parts.append(f'<polygon fill="{_COLORS[place]}" points="{" ".join([*there, *back])}"/>')
        bottoms = tops
    begin_s, end_s = scene.hang
    for at_s in scene.hang:
        at = x + _WIDTH * at_s / scene.duration_s
        parts.append(f'<path d="M{at:.1f} {y - 4}V{y + _HEIGHT + 4}" stroke="black" stroke-dasharray="3 2"/>')
    parts.append(f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#555"/>')
    for number in range(int(scene.duration_s / _TIMES_S) + 1):
        at_s = number * _TIMES_S
        at = x + _WIDTH * at_s / scene.duration_s
        parts.append(f'<path d="M{at:.1f} {y + _HEIGHT}v4" stroke="#555"/>')
        parts.append(
            f'<text x="{at:.1f}" y="{y + _HEIGHT + 15}" font-size="10" fill="#555" text-anchor="middle">{at_s:.0f} s</text>'
        )
    before, during, after = (
        outcome.p99_s(10.0, begin_s),
        outcome.p99_s(begin_s, end_s),
        outcome.p99_s(end_s + 10.0),
    )
    lines = (f"p99 before {_said(before)}, after {_said(after)};", f"while it hangs {_said(during)}")
    for number, line in enumerate(lines):
        parts.append(f'<text x="{x}" y="{y + _HEIGHT + 33 + 15 * number}">{line}</text>')
    return parts


def _stairs(shares: list[float], x: int, y: int, step: float) -> list[str]:
    """A share holds for the whole of its time."""
    corners: list[str] = []
    for index, share in enumerate(shares):
        at = y + _HEIGHT * (1 - share)
        corners += [f"{x + index * step:.1f},{at:.1f}", f"{x + (index + 1) * step:.1f},{at:.1f}"]
    return corners


def _said(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1.0 else f"{seconds:.1f} s"
