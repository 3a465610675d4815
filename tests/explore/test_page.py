"""Claims about the explorer as a file.

1. What is given comes back from the page's data: places, texts, numbers, measures, similar rows;
   numbers that are not finite become none.
2. Hostile texts change no element of the page; its policy allows no source but its own script.
3. 10,000 rows × 30 columns stay under 10 MB; no extra is needed; the file is replaced whole.
"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.audit.test_page import Elements, cell, data_of
from tests.report.test_page import HOSTILE
from varjepa.explore.page import ExploreColumn, ExploreData, write_page


def example(rows: int = 300, extra: int = 0) -> ExploreData:
    """Two clouds: rows of even number on the left, cheap and red; the others right, dear and blue.

    A row is most similar to the next five of its cloud.
    """
    rng = np.random.default_rng(0)
    side = np.arange(rows) % 2
    x, y = 10 * side + rng.normal(size=rows), rng.normal(size=rows)
    price = 100 + 50 * side + rng.normal(size=rows)
    noise = rng.normal(size=(extra + 1, rows))
    prices: list[float | None] = [float(p) for p in price]
    prices[3] = None
    atypical = rng.uniform(size=rows)
    numbers = [ExploreColumn(f"noise {i}", "numeric", *_numbers(v)) for i, v in enumerate(noise)]
    return ExploreData(
        title="Houses",
        facts=(("rows", f"{rows:,}"),),
        labels=tuple(f"r{i}" for i in range(rows)),
        x=tuple(float(v) for v in x),
        y=tuple(float(v) for v in y),
        columns=(
            ExploreColumn(
                "colour", "categorical", tuple("blue" if s else "red" for s in side), None, None
            ),
            ExploreColumn(
                "price",
                "numeric",
                tuple(None if p is None else f"{p:.2f}" for p in prices),
                tuple(prices),
                tuple(2 * float(s) for s in atypical),
            ),
            ExploreColumn(
                "built",
                "datetime",
                tuple(f"20{10 + i % 10}-01-15" for i in range(rows)),
                tuple(float(i % 10) for i in range(rows)),
                None,
                is_used=False,
            ),
            *numbers,
        ),
        measures=(("uncertainty", tuple(float(v) for v in noise[0] ** 2)),),
        similar=tuple(tuple((i + 2 * k) % rows for k in range(1, 6)) for i in range(rows)),
        distances=tuple((0.25, 0.5, 0.75, 1.0, 1.25) for _ in range(rows)),
    )


def _numbers(values: np.ndarray) -> tuple[tuple[str, ...], tuple[float, ...], None]:
    return tuple(f"{v:.4f}" for v in values), tuple(float(v) for v in values), None


def hostile_example() -> ExploreData:
    """Every text of the example is hostile."""
    data = example(60)

    def text(i: int) -> str:
        return f"{i} {HOSTILE[i % len(HOSTILE)]}\u202e"

    return replace(
        data,
        title=text(0),
        facts=((text(1), text(2)),),
        labels=tuple(text(i) for i in range(60)),
        columns=tuple(
            replace(c, name=text(k), values=tuple(text(i % 7 + k) for i in range(60)))
            for k, c in enumerate(data.columns)
        ),
        measures=((text(4), data.measures[0][1]),),
    )


def page_of(data: ExploreData, folder: Path) -> str:
    write_page(data, folder / "page.html")
    return (folder / "page.html").read_text(encoding="utf-8")


def test_what_is_given_comes_back(tmp_path: Path) -> None:
    data = example()
    read = data_of(page_of(data, tmp_path))
    assert read["labels"] == list(data.labels)
    assert read["x"] == pytest.approx(data.x, rel=1e-3)
    for given, found in zip(data.columns, read["columns"], strict=True):
        assert [cell(found, i) for i in range(300)] == list(given.values)
        assert (found["numbers"] is None) == (given.numbers is None)
    assert read["columns"][1]["numbers"][3] is None
    assert read["columns"][1]["numbers"][4] == pytest.approx(data.columns[1].numbers[4])  # type: ignore[index]
    assert read["similar"][7] == [9, 11, 13, 15, 17]
    assert read["distances"][7] == [0.25, 0.5, 0.75, 1.0, 1.25]
    assert [column["used"] for column in read["columns"]] == [True, True, False, True]
    assert read["measures"][0]["name"] == "uncertainty"


def test_numbers_that_are_not_finite_become_none(tmp_path: Path) -> None:
    data = example()
    read = data_of(page_of(replace(data, x=(math.nan, *data.x[1:])), tmp_path))
    assert read["x"][0] is None


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    calm, hostile = page_of(example(), tmp_path), page_of(hostile_example(), tmp_path)
    assert [t for t, _ in Elements(calm).tags] == [t for t, _ in Elements(hostile).tags]
    assert "\u202e" not in hostile
    assert not set("<>&") & set(hostile.split('id="data">')[1].split("</script>")[0])
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', hostile)
    assert re.match(r"default-src 'none'; script-src 'sha256-[^ ]+'; style-src 'unsafe-in", policy)


def test_a_large_page_is_small(tmp_path: Path) -> None:
    assert len(page_of(example(10_000, extra=26), tmp_path).encode()) < 10_000_000


def test_it_needs_no_extra_and_replaces_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("jinja2", "markupsafe", "matplotlib"):
        monkeypatch.setitem(sys.modules, name, None)
    page_of(example(), tmp_path)
    assert "Flats" in page_of(replace(example(), title="Flats"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
