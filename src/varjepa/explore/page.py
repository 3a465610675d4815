"""The explorer: a map of the embedding, in one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from varjepa.explore.page_data import ExploreData
from varjepa.report.interactive import figure, pack_texts, render_interactive, visible
from varjepa.report.page import write_report


def write_page(data: ExploreData, path: Path) -> None:
    """Write the page in one step: a reader never sees half of it."""
    write_report(render_page(data), path)


def render_page(data: ExploreData) -> str:
    """The page as HTML."""
    fallback = "<p>This page needs JavaScript.</p>"
    return render_interactive("varjepa.explore", "explore", data.title, _pack(data), fallback)


def _pack(data: ExploreData) -> dict[str, Any]:
    """The data as the script reads it."""
    return {
        "title": visible(data.title),
        "facts": [[visible(name), visible(value)] for name, value in data.facts],
        "labels": [visible(label) for label in data.labels],
        "x": [figure(x, 5) for x in data.x],
        "y": [figure(y, 5) for y in data.y],
        "columns": [
            {
                "name": visible(column.name),
                "kind": column.kind,
                "texts": pack_texts(column.values),
                "numbers": _figures(column.numbers, 9),
                "atypical": _figures(column.atypical, 3),
                "used": column.is_used,
            }
            for column in data.columns
        ],
        "measures": [
            {"name": visible(name), "numbers": _figures(numbers, 4)}
            for name, numbers in data.measures
        ],
        "similar": data.similar,
        "distances": [_figures(distances, 3) for distances in data.distances],
    }


def _figures(numbers: tuple[float | None, ...] | None, digits: int) -> list[float | None] | None:
    return None if numbers is None else [figure(number, digits) for number in numbers]
