"""Draw the SVG charts of the report: delays over time in a cell, and lost events by way of sending."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from outbox_lab.drill.cell import CellResult
from outbox_lab.drill.reporting.summary import WaySummary

WIDTH, HEIGHT = 320, 130
LEFT, RIGHT, TOP, BOTTOM = 60, 8, 8, 22
SMALLEST_DELAY_S = 0.01
BAR_HEIGHT, BAR_LABEL_WIDTH, BAR_WIDTH = 24, 170, 340


def delay_chart(result: CellResult) -> Markup:
    """Plot the delay of a cell's events, on a logarithmic scale, against their commit time, and mark the faults."""
    if not result.delays:
        return Markup("")
    start = result.delays[0][0]
    length = max(result.delays[-1][0] - start, 1.0)
    highest = max([1.0, *(delay for _, delay in result.delays)])
    decades = [10.0**power for power in range(-2, math.ceil(math.log10(highest)) + 1)]

    def x(at: float) -> float:
        return LEFT + (min(max(at - start, 0), length) / length) * (WIDTH - LEFT - RIGHT)

    def y(delay: float) -> float:
        share = math.log10(max(delay, SMALLEST_DELAY_S) / decades[0]) / math.log10(decades[-1] / decades[0])
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    parts = [_grid_line(y(value), _seconds(value)) for value in decades]
    parts += [_fault_band(x(begin), x(end)) for begin, end in result.fault_spans]
    points = " ".join(f"{x(at):.1f},{y(delay):.1f}" for at, delay in result.delays)
    parts.append(f'<polyline class="delay" points="{points}"/>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 6}">0 s</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{length:.0f} s</text>')
    return _svg(WIDTH, HEIGHT, f"Delay of {result.way} under {result.fault}", parts)


def loss_chart(ways: Sequence[WaySummary]) -> Markup:
    """Return a bar chart that shows, for each way, the lost and phantom events per thousand committed events."""
    shares = [1000 * (way.counts["lost"] + way.counts["phantom"]) / max(1, way.committed) for way in ways]
    largest = max([*shares, 1e-9])
    parts = [
        _bar(number, way, share, share / largest) for number, (way, share) in enumerate(zip(ways, shares, strict=True))
    ]
    width = BAR_LABEL_WIDTH + BAR_WIDTH + 80
    title = "Lost and phantom events per 1,000 committed events"
    return _svg(width, BAR_HEIGHT * len(ways) + 4, title, parts)


def _bar(number: int, way: WaySummary, value: float, share: float) -> str:
    top = number * BAR_HEIGHT + 4
    length = share * BAR_WIDTH
    kind = "lost" if value else "none"
    return (
        f'<text x="{BAR_LABEL_WIDTH - 8}" y="{top + 14}" text-anchor="end">{way.way}</text>'
        f'<rect class="bar" x="{BAR_LABEL_WIDTH}" y="{top}" width="{max(length, 1):.1f}" height="{BAR_HEIGHT - 6}"/>'
        f'<text class="{kind}" x="{BAR_LABEL_WIDTH + max(length, 1) + 6:.1f}" y="{top + 14}">{_share(value)}</text>'
    )


def _share(value: float) -> str:
    return f"{value:.3g}" if value else "0"


def _grid_line(y: float, label: str) -> str:
    return (
        f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        f'<text x="{LEFT - 4}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    )


def _fault_band(begin: float, end: float) -> str:
    width = max(end - begin, 1.5)
    height = HEIGHT - TOP - BOTTOM
    return f'<rect class="fault" x="{begin:.1f}" y="{TOP}" width="{width:.1f}" height="{height}"/>'


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.0f} s"


STYLE = (
    "<style>text{font:12px system-ui,sans-serif;fill:#1f2933}.grid{stroke:#d5dae0}.delay{fill:none;stroke:#1f5fa8;"
    "stroke-width:1.4}.fault{fill:#c62828;fill-opacity:.25}.bar{fill:#c62828}.lost{fill:#c62828}</style>"
)


def _svg(width: int, height: int, title: str, parts: Sequence[str]) -> Markup:
    """Return a self-contained SVG element. `parts` must not contain text from users."""
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">'
    return Markup(opening + STYLE + "".join(parts) + "</svg>")  # noqa: S704 - numbers, and names of ways and faults
