"""The plot of one run: each figure as a bar beside its bound."""

from __future__ import annotations

from statistics import median
from typing import Any, Final

_BOUNDS: Final = (
    ("start_s", "start", "s", 3.0),
    ("edit_reaches_s", "an edit reaches its watcher", "ms", 0.2),
    ("edit_cpu_s", "CPU of an edit", "ms", 0.05),
    ("fresh_question_s", "a fresh question meanwhile", "ms", 0.05),
    ("fresh_beside_large_s", "beside a large answer", "ms", 0.05),
    ("stop_s", "end after SIGTERM", "s", 1.0),
)
"""Key, label, unit, and the bound in seconds."""

_COLORS: Final = {"slices": "#2b6cb0", "workloads": "#38a169"}
_WIDTH: Final = 760
_LEFT: Final = 210
_SPAN: Final = 420


def plot(saved: dict[str, Any]) -> str:
    of = saved["of"]
    title = (
        f"{of['services']} services, {of['services'] * of['endpoints']} endpoints, {of['streams']} streams: "
        "medians, against their bounds"
    )
    parts = [f'<text x="10" y="20" font-weight="bold">{title}</text>']
    y = 40
    for key, label, unit, bound in _BOUNDS:
        parts.append(f'<text x="10" y="{y + 18}">{label}</text>')
        for form, row in saved["forms"].items():
            value = row[key]
            middle = median(value) if isinstance(value, list) else value
            width = min(1.5, middle / bound) * _SPAN / 1.5
            text = f"{middle * 1000:.1f} ms" if unit == "ms" else f"{middle:.2f} s"
            parts.append(f'<rect x="{_LEFT}" y="{y}" width="{width:.0f}" height="12" fill="{_COLORS[form]}"/>')
            parts.append(f'<text x="{_LEFT + width + 6:.0f}" y="{y + 10}">{text}</text>')
            y += 15
        line = _LEFT + _SPAN / 1.5
        parts.append(f'<line x1="{line:.0f}" x2="{line:.0f}" y1="{y - 32}" y2="{y}" stroke="#c53030"/>')
        y += 12
    for index, (form, color) in enumerate(_COLORS.items()):
        parts.append(f'<rect x="{10 + 120 * index}" y="{y}" width="12" height="12" fill="{color}"/>')
        parts.append(f'<text x="{26 + 120 * index}" y="{y + 10}">{form}</text>')
    parts.append(f'<text x="260" y="{y + 10}" fill="#c53030">red: the bound</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y + 24}" font-family="sans-serif" font-size="12">'
    return f'{head}<rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
