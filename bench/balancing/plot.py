"""Shares over time as a picture: a row for each rate, a column for each policy, the time of the hang shaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bench.balancing.simulation import NAMES, Outcome, Scene

_COLORS: Final = ("#2b6cb0", "#38a169", "#dd6b20", "#c53030")
_WIDTH: Final = 230
_HEIGHT: Final = 110
_LEFT: Final = 70
_TOP: Final = 64
_GAP: Final = 44


def svg(found: Mapping[float, Mapping[str, Outcome]], scene: Scene) -> str:
    names = list(next(iter(found.values())))
    width = _LEFT + len(names) * (_WIDTH + 16)
    height = _TOP + len(found) * (_HEIGHT + _GAP) + 4
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="18" font-size="14">Share of requests per endpoint over {scene.duration_s:.0f} s; '
        f"the fourth, usually at 5 ms, hangs from {scene.hang[0]:.0f} s to {scene.hang[1]:.0f} s (simulated)</text>",
    ]
    for place, name in enumerate(NAMES):
        x = 8 + place * 90
        parts.append(f'<rect x="{x}" y="27" width="12" height="12" fill="{_COLORS[place]}"/>')
        parts.append(f'<text x="{x + 17}" y="38">{name}</text>')
    for column, name in enumerate(names):
        parts.append(f'<text x="{_LEFT + column * (_WIDTH + 16)}" y="{_TOP - 6}" font-weight="bold">{name}</text>')
    for row, (rate, outcomes) in enumerate(found.items()):
        y = _TOP + row * (_HEIGHT + _GAP)
        parts.append(f'<text x="8" y="{y + _HEIGHT / 2}">{rate:g}/s</text>')
        for column, outcome in enumerate(outcomes.values()):
            parts.extend(_panel(outcome, scene, _LEFT + column * (_WIDTH + 16), y))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(outcome: Outcome, scene: Scene, x: int, y: int) -> list[str]:
    step = _WIDTH / len(outcome.shares)
    bottoms = [0.0] * len(outcome.shares)
    parts: list[str] = []
    for place in range(len(NAMES)):
        tops = [bottom + shares[place] for bottom, shares in zip(bottoms, outcome.shares, strict=True)]
        there = [f"{x + index * step:.1f},{y + _HEIGHT * (1 - top):.1f}" for index, top in enumerate(tops)]
        back = [f"{x + index * step:.1f},{y + _HEIGHT * (1 - bottom):.1f}" for index, bottom in enumerate(bottoms)]
        parts.append(f'<polygon fill="{_COLORS[place]}" points="{" ".join([*there, *reversed(back)])}"/>')
        bottoms = tops
    begin_s, end_s = scene.hang
    left, right = (x + _WIDTH * at / scene.duration_s for at in scene.hang)
    parts.append(
        f'<rect x="{left:.1f}" y="{y}" width="{right - left:.1f}" height="{_HEIGHT}" fill="black" opacity="0.2"/>'
    )
    before, during, after = (
        outcome.p99_s(10.0, begin_s),
        outcome.p99_s(begin_s, end_s),
        outcome.p99_s(end_s + 10.0),
    )
    text = f"p99 {_said(before)}; while it hangs {_said(during)}; after {_said(after)}"
    parts.append(f'<text x="{x}" y="{y + _HEIGHT + 16}" font-size="11">{text}</text>')
    return parts


def _said(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1.0 else f"{seconds:.1f} s"
