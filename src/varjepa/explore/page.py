"""The explorer: what it shows, as plain data, and its page, a map of the rows in one HTML file."""

from __future__ import annotations

import html
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from varjepa.report.interactive import figure, pack_texts, render_interactive, visible
from varjepa.report.page import write_report

NOTEBOOK_BYTES = 2_000_000
"""of a page that a notebook shows; it would keep a larger one in its file"""


@dataclass(frozen=True, slots=True)
class ExploreColumn:
    """A column of the table, one entry a row."""

    name: str
    kind: str
    """number, category or date"""
    values: tuple[str | None, ...]
    """as text, None where missing"""
    numbers: tuple[float | None, ...] | None
    """numbers and dates: places on an axis; None for categories"""
    atypical: tuple[float | None, ...] | None
    """how unlikely each cell is given the others, 1 is usual in its column; None: not computed"""
    is_used: bool = True
    """whether the model knows it"""


@dataclass(frozen=True, slots=True, repr=False)
class ExploreData:
    """The whole page; rows are at most 10,000. A notebook shows it, unless it is large."""

    title: str
    facts: tuple[tuple[str, str], ...]
    """name and value, such as rows, columns, model"""
    labels: tuple[str, ...]
    x: tuple[float, ...]
    y: tuple[float, ...]
    """places on the map; a row without a finite place is not on it"""
    columns: tuple[ExploreColumn, ...]
    measures: tuple[tuple[str, tuple[float | None, ...]], ...]
    """name and a number a row, such as uncertainty and outlier score"""
    similar: tuple[tuple[int, ...], ...]
    """places of the most similar rows of each row, the most similar first"""
    distances: tuple[tuple[float, ...], ...]
    """of those; of two rows about 1"""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page."""
        write_page(self, Path(path))

    def __repr__(self) -> str:
        return (
            f"ExploreData({self.title!r}, {len(self.labels):,} rows, {len(self.columns)} columns)"
        )

    def _repr_html_(self) -> str:
        page = render_page(self)
        if len(page) > NOTEBOOK_BYTES:
            return (
                f"<p><b>{html.escape(visible(self.title))}</b>: {len(self.labels):,} rows, "
                f"{len(self.columns):,} columns. The page has {len(page) / 1e6:.0f} MB, too much "
                'for a notebook: write it with <code>.save("page.html")</code> and open the file '
                "in a browser.</p>"
            )
        page = page.replace("&", "&amp;").replace("'", "&#39;")  # JSON is full of double quotes
        frame = 'title="Explorer" sandbox="allow-scripts" style="width:100%;height:640px;border:0"'
        return f"<iframe {frame} srcdoc='{page}'></iframe>"


def write_page(data: ExploreData, path: Path) -> None:
    """Write the page in one step: a reader never sees half of it."""
    write_report(render_page(data), path)


def render_page(data: ExploreData) -> str:
    fallback = "<p>This page needs JavaScript.</p>"
    return render_interactive("varjepa.explore", "explore", data.title, _pack(data), fallback)


def _pack(data: ExploreData) -> dict[str, Any]:
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
