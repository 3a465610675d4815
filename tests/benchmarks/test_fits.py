"""Claims about the time to quality.

1. A made table is the same for the same seed, has both kinds of columns, and its columns can be
   filled from each other.
2. The marginals' score is that of a model that knows nothing but the columns.
3. A fit reaches quality at the first validation that has closed 99 % of the gap.
4. Every measurement becomes a row once; a second run measures only what is missing; a peer that
   takes too long is ended.
5. The shares of a fit's parts add up to 1.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks import fits
from benchmarks.fits import (
    FitShape,
    bench_fits,
    dependent_table,
    fit_table,
    in_process,
    marginals_score,
    seconds_to_quality,
    shares_of,
    stopwatch,
    summarise,
)
from benchmarks.ground.peers import IMPUTERS
from varjepa import VarTJEPA

SMALL = {"architecture__d": 16, "architecture__predictor_width": 16, "training__max_steps": 30}


def test_a_made_table_depends_on_its_seed_alone() -> None:
    one, same, other = (dependent_table(40, 6, seed) for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(one, same)
    assert not one["c1"].equals(other["c1"])
    assert {pd.api.types.is_numeric_dtype(one[name]) for name in one} == {True, False}


def test_columns_of_a_made_table_can_be_filled_from_each_other() -> None:
    table = fit_table(FitShape(400, 10))
    filled = {
        name: fits._errors(table, IMPUTERS[name](table.known, None, 0))
        for name in ("mean_mode", "miss_forest")
    }
    assert filled["miss_forest"]["rmse"] < 0.6 * filled["mean_mode"]["rmse"]
    assert filled["miss_forest"]["accuracy"] > filled["mean_mode"]["accuracy"] + 0.1


def test_marginals_are_what_an_untrained_model_knows_and_levels() -> None:
    frame = fit_table(FitShape(300, 6)).frame
    model = VarTJEPA(random_state=0).set_params(
        **SMALL | {"training__max_steps": 1, "training__learning_rate": 1e-12}
    )
    model.fit(frame)
    untrained = model.history_[0]["held-out cells"]
    score = marginals_score(model, frame)
    assert untrained < score < untrained + 1.0  # whose categories are uniform
    numbers = frame.select_dtypes(np.number)
    model.fit(numbers)
    # its numbers have their columns' bins and a variance of 1
    assert marginals_score(model, numbers) == pytest.approx(
        model.history_[0]["held-out cells"], abs=0.1
    )


def test_quality_is_reached_at_the_first_validation_above() -> None:
    fit = {"marginals": -2.0, "curve": [(1.0, -1.5), (2.0, -1.011), (3.0, -1.009), (4.0, -1.0)]}
    assert seconds_to_quality(fit, best=-1.0) == 3.0
    assert seconds_to_quality(fit, best=0.0) is None


def test_rows_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def fake(work: Any, args: tuple[Any, ...], limit: float | None) -> Any:
        calls.append(work.__name__)
        if work is fits.measure_fits:
            row = {"epochs": 2, "marginals": -2.0, "curve": [(1.0, -1.0)], "source": "made"}
            row |= {"fit_s": 1.0, "shares": {}, "peak_mb": 1.0, "is_cold": True}
            yield {"task": "fit 0", **row}
            yield {"task": "use", "embed_rows_per_s": 1.0}
        elif work is fits.measure_long:
            assert args[2] == 6  # three times the epochs
            yield {"best": -1.0, "curve": [(1.0, -1.0)], "marginals": -2.0}
        elif work is fits.measure_peer:
            yield None  # ended by its limit
        else:
            yield {"gflop_per_s": 1.0}

    monkeypatch.setattr(fits, "in_process", fake)
    shown: list[Any] = []
    rows = bench_fits(["500x10"], "cpu", 1, ["boosting"], on_row=shown.append)
    assert [r["task"] for r in rows] == ["machine", "fit 0", "use", "long", "peer boosting"]
    assert shown == rows
    assert rows[-1]["seconds"] is None
    (line,) = summarise(rows)
    assert (line["to_quality_s"], line["closed_share"]) == (1.0, 1.0)
    calls.clear()
    bench_fits(["500x10"], "cpu", 1, ["boosting"], rows=rows)
    assert calls == []
    bench_fits(["500x10"], "cpu", 1, ["boosting"], rows=[], time_limit=0.0)
    assert calls == []


def _never_ends(emit: Any) -> None:
    emit({"begun": True})
    time.sleep(600)


def test_a_process_is_ended_at_its_limit() -> None:
    # a fresh process imports torch before it can emit anything
    assert list(in_process(_never_ends, (), 30.0)) == [{"begun": True}, None]


def test_shares_add_up(tmp_path: Path) -> None:
    frame = dependent_table(200, 5)
    model = VarTJEPA(random_state=0).set_params(**SMALL)
    start = time.perf_counter()
    with stopwatch("cpu") as seconds:
        model.fit(frame)
    whole = time.perf_counter() - start
    shares = shares_of(seconds, whole, 0.0)
    assert sum(shares.values()) == pytest.approx(1.0, abs=0.01)
    assert min(shares["reading"], shares["steps"], shares["validation"]) > 0.0
    assert shares["other"] < 0.2
