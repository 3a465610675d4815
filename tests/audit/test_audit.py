"""Claims about ``varjepa.audit``:

- planted errors of every kind (number, category, date, sign, typing error) are flagged, and typing
  errors are repaired;
- p-values of clean cells are uniform or larger; clean tables have no flag; with 3 % errors few
  flags are false;
- a number in another form is flagged by rule, however large the table, and changes no other flag;
- truth values are compared with the levels in the model's own spelling;
- a missing cell has no score; identifiers are not audited, and the columns' frame says so;
- repaired() changes the listed cells and nothing else, in types and frames of the caller: pandas,
  polars, Arrow, numpy; the caller's own frame is not touched;
- an Arrow table that is repaired keeps its metadata, and a column that was pandas' index;
- a number that is far away only by its sign or decimal point is repaired by that, exactly, if its
  row makes the number meant likely; a genuine far number is not;
- a repair below the confidence asked for is not made; by default a typing error is mended, a rare
  but genuine level and number stay, and an impossible number is flagged, whether repaired or not;
- confidence weighs that the cell is wrong: where errors are rarer, it is less;
- rows with planted errors have the highest scores, and name the column;
- new rows that differ from the training rows have drift, however far away; the same rows have none;
- a column that the model does not know is named by a warning at the caller's line;
- the model says nothing of far numbers, other forms and new texts;
- marks such as the smallest integer are far away, and hide no other number;
- 0 is not far away in a column that is mostly 0, whatever rounding makes of it, and beyond many
  zeros a value is as far as the column is wide; a number below 0 is far where hardly any is;
- p-values of a large column trust its tail no more than those of a small one;
- progress only grows, also where a sample calibrates first;
- a table in files, scored block by block, gives what the table in memory gives;
- all blocks are scored in as many passes as those that calibrate, also where time is short;
- without a model one is fitted to the table itself, and an interrupted audit uses what is there;
- the page has the rows with the most suspicious cells, in that order, says how many are left out,
  and names the file; dates are drawn on an axis of milliseconds;
- the index of a pandas frame is a column of the frames, unless it counts the rows;
- options of a new fit are refused for a fitted model;
- the page marks every flagged cell, the first ones with a distribution; if it cannot, it says so;
- that fit is used again for the same table and settings, whatever verbose, device and time limit;
  otherwise the refusal names what differs, and overwrite fits anew;
- the model's device is its own again after an audit, also one that was stopped; a seed given is
  used for a model that is not fitted;
- wrong arguments are refused in one sentence.
"""

from __future__ import annotations

import itertools
import math
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from sklearn.base import clone

import varjepa
from benchmarks.ground.errors import spoil
from tests.audit.conftest import SMALL, draw
from tests.small import fit_small, small, use_as_defaults
from varjepa import VarTJEPA
from varjepa.audit import page as audit_page
from varjepa.audit import repairs, run
from varjepa.audit.fitting import FitOptions, fit_own
from varjepa.audit.odds import FAR, NumberTails
from varjepa.audit.result import _replaced
from varjepa.audit.run import p_values
from varjepa.audit.scoring import CellScorer, ModelView
from varjepa.errors import InputError
from varjepa.metrics.discoveries import ExponentialTail, benjamini_hochberg
from varjepa.tables import TableCodec, read_table

Spoiled = tuple[pd.DataFrame, dict[tuple[int, str], Any]]


def places(cells: pd.DataFrame) -> set[tuple[int, str]]:
    return set(zip(cells["row"], cells["column"], strict=True))


def test_planted_errors_are_flagged(model: VarTJEPA, spoiled: Spoiled) -> None:
    frame, truth = spoiled
    found = varjepa.audit(frame, model).cells
    flagged = found[found["flagged"]]
    assert places(flagged) >= set(truth)
    assert len(flagged) <= len(truth) + 1
    typing_error = flagged[flagged["column"] == "region"].iloc[0]
    assert (typing_error["value"], typing_error["repair"]) == ("northxrn", "northern")
    assert typing_error["level_1"] == "northern"
    assert typing_error["confidence"] > 0.5


def test_p_values_of_clean_cells_are_uniform_or_larger(model: VarTJEPA) -> None:
    scorer, small = CellScorer(model), []
    for seed in range(5):
        scores = scorer.score(read_table(draw(400, 100 + seed)))
        p = p_values([ExponentialTail(column) for column in scores.odds.T], scores)
        assert benjamini_hochberg(p, 0.05) == -1.0
        small.append([np.nanmean(p <= level) for level in (0.1, 0.01, 0.001)])
    assert (np.mean(small, axis=0) <= np.array([0.12, 0.015, 0.002])).all()


def test_few_flags_are_false(model: VarTJEPA) -> None:
    scorer, false, recall = CellScorer(model), [], []
    for seed in range(6):
        wrong = spoil(draw(400, 200 + seed), seed)
        scores = scorer.score(read_table(wrong.frame))
        p = p_values([ExponentialTail(column) for column in scores.odds.T], scores)
        flagged = p <= benjamini_hochberg(p, 0.05)
        false.append((flagged & ~wrong.is_wrong).sum() / max(1, flagged.sum()))
        recall.append((flagged & wrong.is_wrong).sum() / wrong.is_wrong.sum())
    assert np.mean(false) <= 1.2 * 0.05
    assert np.mean(recall) >= 0.3


def test_another_form_is_flagged_by_rule(model: VarTJEPA) -> None:
    frame = draw(300, seed=2).astype({"length": object})
    frame["length"] = frame["length"].map(lambda x: None if np.isnan(x) else f"{x:.3f}")
    plain = varjepa.audit(frame, model, fdr=1e-9)
    frame.loc[[7, 8], "length"] = ["0.120 kg", "twelve"]
    audit = varjepa.audit(frame, model, fdr=1e-9)  # as strict as a table of 10⁹ cells
    flagged = audit.cells[audit.cells["flagged"]]
    assert places(flagged) - {(7, "length"), (8, "length")} == places(
        plain.cells[plain.cells["flagged"]]
    )
    assert flagged.set_index("row").loc[[7, 8], "column"].tolist() == ["length", "length"]
    assert flagged.set_index("row").loc[7, "repair"] == "0.120"
    assert audit.columns.set_index("column").loc["length", "flagged"] == 2
    assert audit.repaired().loc[7, "length"] == "0.120"


def test_missing_cells_have_no_score_and_identifiers_are_named(
    model: VarTJEPA, spoiled: Spoiled
) -> None:
    frame = spoiled[0].assign(ticket=np.arange(300))
    with pytest.warns(UserWarning, match="ticket"):
        audit = varjepa.audit(frame, model, top=10_000)
    missing = frame["length"].isna()
    listed = audit.cells[audit.cells["column"] == "length"]
    assert len(audit.cells) == frame.notna().to_numpy().sum() - 300
    assert not missing[listed["row"]].any()
    about = audit.columns.set_index("column")
    assert about.loc["ticket", "not_audited"] == "unknown to the model"
    assert repr(audit).endswith("; not audited: 'ticket' (unknown to the model)")
    assert about.loc["length", "cells"] == (~missing).sum()


def test_truth_values_are_the_levels_that_the_model_knows() -> None:
    known = ["True", "False", "False", "True"] * 10
    codec = TableCodec.fit(pa.table({"alive": known}), {"alive": "categorical"})
    view = ModelView.of(codec, {}, pa.table({"alive": [True, False, None]}))
    assert view.texts["alive"] == ["True", "False", None]


def frames(frame: pd.DataFrame) -> list[Any]:
    return [frame, pl.from_pandas(frame), pa.Table.from_pandas(frame, preserve_index=False)]


def test_repaired_changes_the_listed_cells_only(model: VarTJEPA, spoiled: Spoiled) -> None:
    frame, _ = spoiled
    before = frame.copy(deep=True)
    frame.index = pd.Index([f"r{i}" for i in range(len(frame))])
    for given in frames(frame):
        audit = varjepa.audit(given, model, top=50)
        fixed, changes = audit.repaired(0.0), audit.changes(0.0)
        assert type(fixed) is type(given) is type(changes) is type(audit.rows)
        old, new = (read_table(one).to_pandas() for one in (given, fixed))
        assert read_table(fixed).schema == read_table(given).schema
        is_same = (old == new) | (old.isna() & new.isna())
        changed = {(i, old.columns[j]) for i, j in np.argwhere(~is_same.to_numpy())}
        assert changed == places(read_table(changes).to_pandas())
        assert changed
    pd.testing.assert_frame_equal(frame.reset_index(drop=True), before)
    assert list(varjepa.audit(frame, model).repaired().index) == list(frame.index)


def test_an_arrow_table_keeps_its_schema(model: VarTJEPA, spoiled: Spoiled) -> None:
    frame, _ = spoiled
    frame.index = pd.Index([f"r{i}" for i in range(len(frame))], name="name")
    table = pa.Table.from_pandas(frame)
    fixed = varjepa.audit(table, model).repaired()
    assert fixed.schema.equals(table.schema, check_metadata=True)
    assert fixed["name"].equals(table["name"])
    assert not fixed["region"].equals(table["region"])


def test_slips_of_sign_and_point_are_undone(model: VarTJEPA, spoiled: Spoiled) -> None:
    frame, truth = spoiled
    audit = varjepa.audit(frame, model)
    fixed, changes = audit.repaired(), audit.changes().set_index(["row", "column"])
    for place in ((10, "weight"), (20, "legs"), (40, "weight")):
        assert fixed.loc[place] == truth[place]
        assert changes.loc[place, "confidence"] > 0.5
    at = {place: i for i, place in enumerate(map(tuple, audit._findings.places.tolist()))}
    drawn = audit._findings.cells.histograms[at[10, audit._findings.names.index("weight")]]
    assert drawn.repair == truth[10, "weight"]


@pytest.mark.parametrize(
    ("value", "is_integer", "meant"),
    [
        (-45.0, False, 45.0),
        (0.045, False, 45.0),
        (4520.0, False, 45.2),
        (4520.0, True, None),  # no whole number
        (90.0, False, None),  # none of the slips
        (390.0, False, None),  # 39 is as unlikely as a number that is wrong for another reason
        (math.inf, False, None),
        (math.nan, False, None),
    ],
)
def test_a_slip_is_a_number_that_the_row_makes_likely(
    value: float, is_integer: bool, meant: float | None
) -> None:
    edges, masses = np.array([30.0, 40.0, 50.0, 60.0]), np.array([0.01, 0.98, 0.01])
    found = repairs.find_slip(value, edges[:-1], edges[1:], masses, 0.5, is_integer)
    assert (found and found[0]) == meant
    if found:
        # the density of log x at 45 against an even one over six orders of magnitude and two signs
        odds = abs(found[0]) * 0.098 * 2.0 * math.log(1e6) / len(repairs.SLIPS)
        assert found[1] == pytest.approx(odds / (1.0 + odds))


def test_a_genuine_far_number_is_not_divided() -> None:
    logs = np.linspace(math.log(1e3), math.log(2e5), 31)
    likely = np.exp(-0.5 * ((logs[:-1] - math.log(9e3)) / 0.8) ** 2)
    edges, masses = np.exp(logs), likely / likely.sum()
    found = repairs.find_slip(215_245.0, edges[:-1], edges[1:], masses, 900.0, True)
    assert found is None or found[1] < 0.5


def test_nothing_is_meant_between_single_values() -> None:
    zero_or_large, masses = np.array([0.0, 400.0, 500.0]), np.array([0.9, 0.05, 0.05])
    for value, meant in ((15_500.0, None), (-500.0, 500.0)):
        found = repairs.find_slip(value, zero_or_large, zero_or_large, masses, 40.0, True)
        assert (found and found[0]) == meant


def test_unsure_repairs_are_not_made(model: VarTJEPA, spoiled: Spoiled) -> None:
    audit = varjepa.audit(spoiled[0], model)
    sure = audit.changes(0.9)
    assert (sure["confidence"] >= 0.9).all()
    assert len(sure) < len(audit.changes(0.0))
    for wrong in (1.5, "a"):
        with pytest.raises(InputError, match="min_confidence must be from 0 to 1"):
            audit.repaired(wrong)  # type: ignore[arg-type]


def test_default_repairs_leave_what_is_rare_and_genuine() -> None:
    frame = draw(600, seed=2)
    houses = [70, 150, 200, 300]
    frame["pool"], frame["area"] = "none", 0
    frame.loc[houses, "pool"] = ["small", "small", "large", "large"]
    frame.loc[houses, "area"] = [90, 120, 519, 738]
    frame.loc[30, "region"] = "northxrn"
    frame.loc[40, "weight"] *= -1.0
    frame.loc[50, "weight"] *= 1000.0
    audit = varjepa.audit(frame, small(VarTJEPA, **SMALL))
    fixed, flagged = audit.repaired(), audit.cells[audit.cells["flagged"]]
    assert {("pool", 200), ("pool", 300)} & {*zip(flagged["column"], flagged["row"], strict=True)}
    assert fixed.loc[houses, ["pool", "area"]].equals(frame.loc[houses, ["pool", "area"]])
    assert fixed.loc[30, "region"] == "northern"
    impossible = flagged[flagged["column"] == "weight"].set_index("row")
    for row in (40, 50):
        is_repaired = impossible.loc[row, "confidence"] >= 0.5
        assert (fixed.loc[row, "weight"] != frame.loc[row, "weight"]) == is_repaired


def test_default_repairs_do_not_take_a_far_number_for_the_usual_one() -> None:
    frame = draw(600, seed=2).assign(extra=0)
    frame.loc[5::20, "extra"] = 400 + 10 * np.arange(30)
    frame.loc[7, "extra"] = 15_500
    audit = varjepa.audit(frame, small(VarTJEPA, **SMALL))
    assert audit.cells.loc[0, ["row", "column", "flagged", "repair"]].tolist() == [
        7, "extra", True, "0",
    ]  # fmt: skip
    assert audit.repaired()["extra"].equals(frame["extra"])


def test_a_rare_error_is_less_probable() -> None:
    odds, p, rule = np.array([6.0, 6.0, 0.0]), np.array([1e-5, 1e-5, 1.0]), np.array([0, 0, 1]) > 0
    rare, often = (repairs.WrongCells(odds, p, rule, share) for share in (1e-4, 1e-2))
    for of in ("by_odds", "by_p"):
        assert 0.0 < getattr(rare, of)(0) < getattr(often, of)(0) < 1.0
    assert often.by_odds(0, excess=3.0) < often.by_odds(0)
    assert rare.by_odds(2) == 1.0


def test_rows_with_errors_come_first(model: VarTJEPA, spoiled: Spoiled) -> None:
    frame, truth = spoiled
    rows = varjepa.audit(frame, model).rows.set_index("row")
    for row, column in truth:
        assert rows.loc[row, "column_1"] == column
        assert rows.loc[row, "p_value"] < 0.1
    assert rows["p_value"].between(0.0, 1.0).all()


def test_the_page_has_the_rows_with_the_worst_cells(
    model: VarTJEPA, spoiled: Spoiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SHOWN_ROWS", 20)
    audit = varjepa.audit(spoiled[0], model, top=5)
    page = audit.page_data()
    shown = [int(row.label) for row in page.rows]
    worst = audit.rows["p_value_1"].to_numpy()
    assert len(shown) == 20
    assert (np.diff(worst[shown]) >= 0.0).all()
    assert worst[shown].max() <= np.delete(worst, shown).min()
    assert page.facts[0][1] == "300, counted from 0; only the 20 most suspicious are on this page"
    cells = varjepa.audit(spoiled[0], model, top=10_000).cells
    smallest = cells.groupby("row")["p_value"].min().reindex(range(300))
    np.testing.assert_allclose(worst, smallest)


def test_the_page_names_the_file(model: VarTJEPA, tmp_path: Path) -> None:
    frame = draw(40, seed=2)
    frame.to_parquet(tmp_path / "animals.parquet")
    assert varjepa.audit(tmp_path / "animals.parquet", model).page_data().title == (
        "Audit of animals.parquet"
    )
    assert varjepa.audit(frame, model).page_data().title == "Audit"


def test_a_date_is_drawn_in_milliseconds(model: VarTJEPA, spoiled: Spoiled) -> None:
    page = varjepa.audit(spoiled[0], model).page_data()
    at = next(i for i, row in enumerate(page.rows) if row.label == "50")
    detail = page.details[at, [column.name for column in page.columns].index("seen")]
    assert detail.value == "2091-06-01"
    assert detail.at == pd.Timestamp("2091-06-01").timestamp() * 1000.0
    assert detail.ends is not None
    for end, text in zip(detail.ends, (detail.lower, detail.upper), strict=True):
        assert abs(end - pd.Timestamp(text).timestamp() * 1000.0) < 86_400_000


@pytest.mark.parametrize(
    ("labels", "kept"),
    [
        ([f"r{i}" for i in range(300)], None),
        ([f"{i}" if i % 2 else i for i in range(300)], [str(i) for i in range(300)]),
        (list(range(300)), "none"),
    ],
)
def test_the_index_of_a_pandas_frame_is_a_column(
    labels: list[Any], kept: Any, model: VarTJEPA, spoiled: Spoiled
) -> None:
    frame = spoiled[0].set_axis(pd.Index(labels), axis=0)
    audit = varjepa.audit(frame, model)
    for found in (audit.cells, audit.rows, audit.changes(0.0)):
        if kept == "none":
            assert "index" not in found
            continue
        wanted = labels if kept is None else kept
        assert found["index"].tolist() == [wanted[row] for row in found["row"]]


def test_the_page_marks_every_flagged_cell(
    model: VarTJEPA, spoiled: Spoiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (audit_page, repairs):
        monkeypatch.setattr(module, "DETAILED", 2)
    audit = varjepa.audit(spoiled[0], model)
    page = audit.page_data()
    marked = {
        (int(page.rows[row].label), page.columns[column].name): detail
        for (row, column), detail in page.details.items()
    }
    flagged = audit.cells[audit.cells["flagged"]]
    assert set(marked) == places(flagged)
    assert len(marked) >= 5
    assert sum(bool(one.masses or one.levels) for one in marked.values()) <= 2
    assert all(one.flagged and one.repair for one in marked.values())
    assert page.facts[-1] == ("flagged cells", str(len(flagged)))
    monkeypatch.setattr(audit_page, "MOST_DETAILS", 3)
    assert audit.page_data().facts[-1] == ("of these on this page", "3")


def test_one_row_is_audited(model: VarTJEPA) -> None:
    assert " cells flagged in 1 row (" in repr(varjepa.audit(draw(1, seed=3), model))


def test_an_array_is_audited_by_position() -> None:
    rows = draw(200, 3)[["length", "width", "weight"]].to_numpy().copy()
    rows[7, 2] *= 5000.0
    audit = varjepa.audit(rows, fit_small(VarTJEPA, rows, **SMALL))
    assert audit.cells["column"][0].as_py() == "x2"
    assert audit.cells["row"][0].as_py() == 7
    assert audit.repaired(0.0).shape == rows.shape


def test_drift(model: VarTJEPA) -> None:
    same, moved = draw(600, seed=1), draw(600, seed=1)
    moved["length"] += 2.0
    drift = varjepa.audit(moved, model).columns.set_index("column")["drift"]
    assert drift["length"] > 0.5
    assert drift.drop("length").max() < 0.05
    assert varjepa.audit(same, model).columns["drift"].max() < 0.05
    same["weight"] *= 1000.0  # so far that the model does not see them
    drift = varjepa.audit(same, model).columns.set_index("column")["drift"]
    assert drift["weight"] > 0.9
    assert drift.drop("weight").max() < 0.05


def test_a_column_that_the_model_does_not_know_is_named_where_it_was_given(
    model: VarTJEPA,
) -> None:
    with pytest.warns(UserWarning, match="does not use: 'extra'") as caught:
        varjepa.audit(draw(50, seed=2).assign(extra=1), model, top=1)
    assert caught[0].filename == __file__


def test_the_model_says_nothing_of_far_numbers_and_other_forms(model: VarTJEPA) -> None:
    frame = draw(40, seed=2).astype({"legs": str})
    frame.loc[3, "weight"] *= 1e6
    frame.loc[[4, 5], "legs"] = ["8 legs", "eight"]
    frame.loc[6, "region"] = "unheard"
    scorer = CellScorer(model)
    scores = scorer.score(read_table(frame))
    unknown = frame.isna().to_numpy()
    assert np.array_equal(np.isnan(scores.odds), unknown)
    for row, name in ((3, "weight"), (4, "legs"), (5, "legs"), (6, "region")):
        unknown[row, scorer.names.index(name)] = True
    assert np.array_equal(np.isnan(scores.nll), unknown)


@pytest.mark.parametrize("marks", [(1e308, -1e300), (-1e17,), (-(2**63),)])
def test_marks_beyond_all_measure_are_far_away(marks: tuple[float, ...]) -> None:
    frame = draw(60, 5)
    if isinstance(marks[0], int):
        frame["legs"] = frame["legs"].astype("int64")
    name = "legs" if isinstance(marks[0], int) else "weight"
    frame.loc[: len(marks) - 1, name] = marks
    table = read_table(frame)
    fitted, levels = fit_own(table, FitOptions(small(VarTJEPA, **{**SMALL, "max_steps": 3})))
    far = ModelView.of(fitted.codec_, CellScorer(fitted, levels).tails, table).distance[name]
    assert (far[: len(marks)] > FAR).all()
    assert (far[len(marks) :] < FAR).all()


def test_zeros_are_not_far_away() -> None:
    almost = 2.8e-14  # 0 as it comes back from network scale
    quantiles = np.array([-9.0, *[almost] * 80, *np.geomspace(10.0, 2000.0, 20)])
    tails = NumberTails(quantiles, 0.0)
    assert tails.distance(np.array([0.0, almost])).tolist() == [0.0, 0.0]
    assert tails.distance(np.array([1e6]))[0] > 0.0


def test_a_count_may_begin_at_0() -> None:
    hours = np.linspace(0.0, 3419.0, 101)
    assert (NumberTails(hours, 0.0).distance(np.array([0.0, 1.0, 34.0])) < FAR).all()
    assert (NumberTails(hours + 3000.0, 0.0).distance(np.array([0.0])) >= FAR).all()
    assert (NumberTails(hours, 0.0).distance(np.array([-100.0])) >= FAR).all()


def test_values_beyond_many_zeros_are_as_far_as_the_column_is_wide() -> None:
    quantiles = np.array([-6e4, -150.0, -6.0, *[0.0] * 10, *np.geomspace(100.0, 3e5, 88)])
    small, opposite = NumberTails(quantiles, 1.0).distance(np.array([-700.0, -80000.0]))
    assert small < FAR < opposite


def test_a_number_below_0_is_far_where_hardly_any_is() -> None:
    amounts = np.array([-40.0, *[0.0] * 60, *np.geomspace(10.0, 2000.0, 40)])
    assert NumberTails(amounts, 0.0).distance(np.array([-20.0, 0.0])).tolist() == [2 * FAR, 0.0]
    assert NumberTails(amounts - 30.0, 0.0).distance(np.array([-20.0]))[0] == 0.0


def test_a_large_column_leans_on_the_bound_as_a_small_one() -> None:
    rng = np.random.default_rng(0)
    for rows in (1000, 100_000):
        p = ExponentialTail(rng.normal(-3.0, 0.1, rows)).p_values(np.array([5.0]))
        assert 0.0045 * math.exp(-5.0) < p[0] < 0.0055 * math.exp(-5.0)


def test_progress_only_grows(model: VarTJEPA, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def show(done: int, total: int, what: str, figure: str) -> None:
        seen.extend([done / total] if what == "scoring" else [])

    monkeypatch.setattr(run, "progress", lambda: nullcontext(show))
    monkeypatch.setattr(run, "BLOCK_ROWS", 64)
    monkeypatch.setattr(run, "CALIBRATION_ROWS", 100)
    varjepa.audit(draw(300, seed=2), model, verbose=1, top=5)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_files_give_what_memory_gives(
    model: VarTJEPA, spoiled: Spoiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.Table.from_pandas(spoiled[0], preserve_index=False)
    for number, begin in enumerate((0, 120)):
        part = table.slice(begin, 120 if number == 0 else 180)
        pyarrow.parquet.write_table(part, tmp_path / f"{number}.parquet")
    held = varjepa.audit(table, model, top=20)
    monkeypatch.setattr(run, "BLOCK_ROWS", 64)
    blocks = varjepa.audit(str(tmp_path), model, top=20)
    for name in ("row", "column", "value", "repair"):
        assert blocks.cells[name].to_pylist() == held.cells[name].to_pylist()
    np.testing.assert_allclose(blocks.cells["p_value"], held.cells["p_value"], rtol=1e-4)
    with pytest.raises(InputError, match="not held in memory"):
        blocks.repaired()
    monkeypatch.setattr(run, "CALIBRATION_ROWS", 200)  # fewer than there are: a sample
    sampled = varjepa.audit(str(tmp_path), model, top=20)
    assert places(sampled.cells.slice(0, 4).to_pandas()) == places(
        held.cells.slice(0, 4).to_pandas()
    )


@pytest.mark.parametrize(("limit", "passes"), [(4.0, True), (0.5, False), (40.0, True)])
def test_all_blocks_have_the_same_passes(
    limit: float, passes: bool, model: VarTJEPA, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, seen, score = itertools.count(), [], CellScorer.score
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))

    def watched(self: CellScorer, table: pa.Table, again: bool = True) -> Any:
        seen.append(again)
        next(clock)
        return score(self, table, again)

    monkeypatch.setattr(CellScorer, "score", watched)
    monkeypatch.setattr(run, "BLOCK_ROWS", 64)
    monkeypatch.setattr(run, "CALIBRATION_ROWS", 100)
    varjepa.audit(draw(300, seed=2), model, time_limit=limit, top=5)
    assert len(seen) == 2 + 5 + 1  # calibration, all rows, those that are described
    assert set(seen) == {passes}
    monkeypatch.setattr(run, "TIMED_ROWS", 50)  # 2 seconds for these, so 16 for 400 rows
    seen.clear()
    varjepa.audit(draw(300, seed=2), model, time_limit=limit, top=5)
    assert set(seen[-8:]) == {limit == 40.0}


def test_a_repaired_category_keeps_the_order_of_its_levels() -> None:
    levels = pa.array(["low", "middle", "high"])
    codes = pa.array([2, 0, 1], pa.int8())
    column = pa.chunked_array([pa.DictionaryArray.from_arrays(codes, levels, ordered=True)])
    new = _replaced(column, {0: pa.scalar("middle")})
    assert (new.type, new.to_pylist()) == (column.type, ["middle", "low", "middle"])
    assert new.chunk(0).dictionary.equals(levels)


def test_without_a_model_and_continued(
    spoiled: Spoiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, truth = spoiled
    use_as_defaults(monkeypatch, VarTJEPA, **SMALL)
    audit = varjepa.audit(frame, folder=tmp_path / "fit")
    flagged = audit.cells[audit.cells["flagged"]]
    assert len(places(flagged) & set(truth)) >= 4
    assert audit.columns["drift"].isna().all()
    monkeypatch.setattr(VarTJEPA, "fit", None)  # the fit is there already
    again = varjepa.audit(frame, folder=tmp_path / "fit")
    pd.testing.assert_frame_equal(again.cells, audit.cells)
    with pytest.raises(InputError, match="holds a fit that differs in the table; overwrite"):
        varjepa.audit(frame.iloc[:200], folder=tmp_path / "fit")


def test_a_fit_is_used_again_for_the_same_settings_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, folder = draw(60, 5), tmp_path / "fit"
    plain = small(VarTJEPA, **{**SMALL, "max_steps": 3})
    varjepa.audit(frame, plain, folder=folder)
    other = clone(plain).set_params(objective__imputer_kl=0.5, random_state=1)  # late in the repr
    said = r"differs in random_state \(0, now 1\), objective__imputer_kl \(.*, now 0.5\);"
    with pytest.raises(InputError, match=said):
        varjepa.audit(frame, other, folder=folder)
    with pytest.raises(InputError, match=r"random_state \(0, now 7\);"):
        varjepa.audit(frame, plain, folder=folder, random_state=7)
    with monkeypatch.context() as patch:
        patch.setattr(VarTJEPA, "fit", None)  # not called: these change no finished fit
        quick = clone(plain).set_params(verbose=1, training__time_limit=99.0)
        varjepa.audit(frame, quick, folder=folder, device="cpu", time_limit=100.0)
    varjepa.audit(frame, other, folder=folder, overwrite=True)
    assert VarTJEPA.load(folder / "model").random_state == 1


def test_an_unfinished_fit_continues_with_its_own_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, folder = draw(60, 5), tmp_path / "fit"
    plain = small(VarTJEPA, **{**SMALL, "max_steps": 3})

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(VarTJEPA, "save", stop)
        varjepa.audit(frame, plain, folder=folder)
    assert (folder / "checkpoints").is_dir()
    with pytest.raises(InputError, match=r"training__time_limit \(None, now 75.0\);"):
        varjepa.audit(frame, plain, folder=folder, time_limit=100.0)
    varjepa.audit(frame, plain, folder=folder, time_limit=100.0, overwrite=True)
    assert {path.name for path in folder.iterdir()} == {"key.json", "model"}


def test_the_model_keeps_its_device(model: VarTJEPA, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def stop(self: CellScorer, *_: object, **__: object) -> None:
        seen.append(self.model.device)
        raise KeyboardInterrupt

    monkeypatch.setattr(CellScorer, "score", stop)
    monkeypatch.setattr(model, "device", "auto")
    for device in ("cpu", None):
        with pytest.raises(KeyboardInterrupt):
            varjepa.audit(draw(30, 0), model, device=device)
        assert model.device == "auto"
    assert seen == ["cpu", "auto"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"fdr": 0.0}, "fdr must be above 0 and below 1, not 0.0"),
        ({"fdr": "a"}, "fdr must be above 0 and below 1, not 'a'"),
        ({"time_limit": "a"}, "time_limit must be above 0 seconds, not 'a'"),
        ({"top": 0}, "top must be an integer of at least 1, not 0"),
        ({"time_limit": -1.0}, "time_limit must be above 0 seconds, not -1.0"),
        ({"model": 3}, "model must be a VarTJEPA or its folder, not int"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        varjepa.audit(draw(30, 0), **options)


@pytest.mark.parametrize(
    "options", [{"column_kinds": {"legs": "categorical"}}, {"random_state": 0}]
)
def test_options_of_a_new_fit_are_refused(options: dict[str, Any], model: VarTJEPA) -> None:
    with pytest.raises(InputError, match=f"{next(iter(options))} is for a new fit"):
        varjepa.audit(draw(30, 0), model, **options)


def test_a_missing_column_is_named(model: VarTJEPA) -> None:
    with pytest.raises(InputError, match="the table has no column 'width'"):
        varjepa.audit(draw(30, 0).drop(columns="width"), model)
