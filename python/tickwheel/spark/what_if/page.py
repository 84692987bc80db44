"""The page of a simulation: which wheel fits the traffic of all recordings together (rules D12, S7)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from tickwheel.pages import templates
from tickwheel.pages.plots import squares
from tickwheel.pages.templates import markup
from tickwheel.recording import About

ROWS: Final = 100
"""The most rows that the page's table has."""

_SHOWN: Final = 12  # ticks, and sizes: a chart with more squares is not readable


@dataclass(frozen=True, slots=True)
class Wheel:
    """The cost of all recordings together on one wheel. `early_us` is the longest of all."""

    tick_ms: int
    size: int
    precision: str
    cascades_per_task: float
    wake_ups_per_s: float
    early_us: int
    peak_bytes: int


def render(recordings: Sequence[tuple[Path, About]], figures: Path, files: Mapping[str, str]) -> str:
    """The whole page, from the written figures. `files` maps the files' names to what a row of each stands for."""
    rows = pq.read_table(figures).to_pylist()
    seconds = sum(about.ended_us - about.at_us for _, about in recordings) / 1_000_000
    wheels = _together(rows, seconds)
    exact, tick = ([wheel for wheel in wheels if wheel.precision == precision] for precision in ("exact", "tick"))
    first = [row for row in rows if (row["tick_ms"], row["wheel_size"], row["precision"]) == _shape(rows[0])]
    return templates.render(
        "spark/what_if/page.html",
        title=f"What if: {len(recordings):,} {'recording' if len(recordings) == 1 else 'recordings'}",
        recordings=list(zip(recordings, first, strict=True)),
        unknown=sum(row["unknown"] for row in first),
        lost=sum(about.lost for _, about in recordings),
        seconds=seconds,
        wheels=wheels[:ROWS],
        more=max(0, len(wheels) - ROWS),
        best={
            "wake-ups": min(exact, key=lambda wheel: wheel.wake_ups_per_s),
            "cascades": min(exact, key=lambda wheel: wheel.cascades_per_task),
            "memory": min(exact, key=lambda wheel: wheel.peak_bytes),
        },
        files=files,
        shown=_SHOWN,
        wake_ups=_chart("wake-ups", exact, lambda wheel: wheel.wake_ups_per_s, _short),
        wake_ups_of_tick=_chart("wake-ups-of-tick", tick, lambda wheel: wheel.wake_ups_per_s, _short),
        early=_chart("early", tick, lambda wheel: wheel.early_us / 1000, _short),
        cascades=_chart("cascades", exact, lambda wheel: wheel.cascades_per_task, "{:.2f}".format),
        memory=_chart("memory", exact, lambda wheel: wheel.peak_bytes / 1024, _short),
    )


def _together(rows: Sequence[Mapping[str, Any]], seconds: float) -> list[Wheel]:
    """Add up the costs of each wheel over all recordings: each recording is a timer of its own."""
    by_shape: dict[tuple[int, int, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        by_shape.setdefault(_shape(row), []).append(row)
    return [
        Wheel(
            *shape,
            cascades_per_task=sum(row["cascades"] for row in found)
            / max(1, sum(row["added"] + row["moved"] for row in found)),
            wake_ups_per_s=sum(row["wake_ups"] for row in found) / max(seconds, 1e-6),
            early_us=max(row["max_early_us"] for row in found),
            peak_bytes=sum(row["peak_bytes"] for row in found),
        )
        for shape, found in sorted(by_shape.items())
    ]


def _shape(row: Mapping[str, Any]) -> tuple[int, int, str]:
    return row["tick_ms"], row["wheel_size"], row["precision"]


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _chart(
    name: str, wheels: Sequence[Wheel], value: Callable[[Wheel], float], write: Callable[[float], str]
) -> Mapping[str, Any]:
    ticks = sorted({wheel.tick_ms for wheel in wheels})[:_SHOWN]
    sizes = sorted({wheel.size for wheel in wheels})[:_SHOWN]
    values = {(wheel.tick_ms, wheel.size): value(wheel) for wheel in wheels}
    table = [[values[tick, size] for size in sizes] for tick in ticks]
    labels = [f"{tick:,} ms" for tick in ticks], [f"{size:,}" for size in sizes]
    return markup(squares(name, table, *labels, ("tick", "wheel size (buckets per level)"), write))
