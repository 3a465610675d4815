"""Claims about the growth study.

1. Every point is a training of the first version's networks, and is timed.
2. Attention's share of the arithmetic grows with the columns, on either side of the length from
   which torch's kernel computes it.
3. The figure shows every device it is given.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import growth
from benchmarks.growth import Point, attention_share, bench_growth, draw_growth, shape_of
from paper.settings import FIRST_VERSION


def test_points_are_the_first_versions_networks() -> None:
    shape = shape_of(Point("depth", "5", 12, 32, {"depth": 5}))
    assert (shape.model.depth, shape.model.d, shape.table.features) == (5, FIRST_VERSION["d"], 12)
    assert shape.masks.targets == FIRST_VERSION["targets"]


def test_attention_takes_over() -> None:
    shares = [attention_share(shape_of(Point("features", str(n), n, 2, {}))) for n in (8, 64, 400)]
    assert shares == sorted(shares)
    assert shares[0] < 0.1
    assert shares[-1] > 0.5


def test_every_point_is_timed_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEATURES", "BATCHES", "DEPTHS"):
        monkeypatch.setattr(growth, name, (2, 4))
    monkeypatch.setattr(growth, "WIDE", 4)
    monkeypatch.setattr(growth, "WIDE_SETTINGS", {"targets=1": {"targets": 1}})
    rows = bench_growth("cpu", batch=8, repeats=1, features=3)
    assert [(r["varied"], r["name"]) for r in rows] == [
        ("features", "2"), ("features", "4"), ("batch", "2"), ("batch", "4"),
        ("depth", "2"), ("depth", "4"), ("settings", "targets=1"),
    ]  # fmt: skip
    assert all(r["step_ms"] > 0 and 0 < r["attention_share"] < 1 for r in rows)
    assert not bench_growth("cpu", batch=8, repeats=1, features=3, max_features=1)
    page = tmp_path / "growth.svg"
    draw_growth([*rows, *({**r, "device": "cuda"} for r in rows)], page)
    text = page.read_text()
    assert "cuda" in text
    assert "cpu" in text
    assert "ms a step" in text
