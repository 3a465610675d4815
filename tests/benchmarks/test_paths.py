"""Claims about the comparison of ways to compute a step.

1. Every way of a CPU that needs no compiler is timed.
2. A way that fails or takes too long becomes a row that says so; a row that is there stays.
"""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import paths
from benchmarks.paths import CPU_PATHS, GPU_PATHS, PathShape, bench_paths, measure_path

TINY = PathShape(d=16, batch=8, columns=4)


@pytest.mark.parametrize("name", [name for name, path in CPU_PATHS.items() if not path.compiled])
def test_every_way_is_timed(name: str) -> None:
    rows: list[dict[str, Any]] = []
    measure_path(rows.append, name, TINY, "cpu", 2)
    assert rows[0]["step_ms"] > 0.0
    assert rows[0]["fit_s"] >= rows[0]["cold_s"]


def test_failures_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(work: Any, args: tuple[Any, ...], limit: float | None) -> Any:
        if args[0] == "plain torch":
            raise RuntimeError("no")
        yield None if args[0] == "compiled" else {"step_ms": 1.0}

    monkeypatch.setattr(paths, "in_process", fake)
    monkeypatch.setattr(paths, "describe_environment", lambda device: {})
    rows = bench_paths("cuda", shapes=[TINY], limit=5.0)
    assert [row["path"] for row in rows] == list(GPU_PATHS)
    errors = {row["path"]: row.get("error") for row in rows}
    assert (errors["plain torch"], errors["compiled"]) == ("no", "over 5.0 s")
    assert len(bench_paths("cuda", shapes=[TINY], limit=5.0, rows=rows)) == len(GPU_PATHS)
