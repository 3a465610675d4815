"""Claims about the proving ground.

1. The halves are fixed: every table is in exactly one, names sorted and taken in turn.
2. Removed cells follow the stated generator, and only known cells are removed.
3. Errors, interval scores, distances, Gower's among them, and ECOD agree with cases computed by
   hand.
4. Tables are coded alike: dates as seconds, a new level as −1, a missing cell as NaN.
5. Imputing peers change no known cell and learn nothing from unseen rows.
6. Cells missing at random leave the observed columns whole and take 30 % of all.
7. One fit serves all jobs that can share it; a contender needs no intervals to be measured.
8. A row that is there is not computed again; a failed group is counted and tried again; no group
   starts after the time limit; rows of other settings are refused; a missing package is said.
9. Files of several machines merge.
10. Bars are measured from the rows of both files, halves apart; what was not measured is missing.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.ground import __main__ as commands
from benchmarks.ground import jobs, peers, running
from benchmarks.ground.__main__ import RESULTS
from benchmarks.ground.jobs import OURS, Contender, JobGroup, mar_cells, mar_draws, measure
from benchmarks.ground.peers import DETECTORS, ecod
from benchmarks.ground.probes import (
    error_figures,
    gower_distances,
    neighbour_figures,
    probe_figures,
    standardised,
)
from benchmarks.ground.running import KEY, Options, merge, missing_groups, run_ground
from benchmarks.ground.samples import nearest, separability, with_missing_cells
from benchmarks.ground.scoring import imputation_figures, interval_figures, pooled_figures
from benchmarks.ground.summary import (
    DETAILS,
    Results,
    bars_table,
    detail_table,
    markdown,
    write_ground_page,
)
from benchmarks.ground.tables import (
    EVERY,
    TABLES,
    CodedTable,
    Coder,
    load,
    names_of,
    numbers_as_floats,
    remove,
    removed_cells,
    split_rows,
)
from paper.store import ResultStore, read_rows
from varjepa.errors import InputError
from varjepa.report.tables import Cell, Table

MISSING = np.nan


def coded(*columns: list[float], levels: dict[int, list[str]] | None = None) -> CodedTable:
    named = levels or {}
    kinds = [pd.Index(named[j]) if j in named else None for j in range(len(columns))]
    return CodedTable(np.array(columns, dtype=np.float64).T, kinds)


# --- tables


def test_halves_are_fixed() -> None:
    development, reporting = names_of("development"), names_of("reporting")
    assert len(TABLES) == 23
    assert sorted((*development, *reporting)) == sorted(EVERY) == sorted(names_of("all"))
    assert development[:3] == ("adult", "auto_mpg", "beijing_air")
    assert reporting[:3] == ("air_quality", "bank_marketing", "bike_sharing_hourly")
    counts = [sum(n.startswith("anomaly/") for n in half) for half in (development, reporting)]
    assert counts == [9, 9]


def test_removed_cells_follow_the_rule() -> None:
    frame = pd.DataFrame({"a": [1.0, None] * 50, "b": ["x"] * 100})
    for seed in (0, 1):
        drawn = np.random.default_rng(3 + seed).random((100, 2)) < 0.2
        removed = removed_cells(frame, seed)
        assert (removed == drawn & frame.notna().to_numpy()).all()
        left = remove(frame, removed)
        assert (left.isna().to_numpy() == (removed | frame.isna().to_numpy())).all()
    fit, unseen = split_rows(10, seed=0)
    assert sorted([*fit, *unseen]) == list(range(10))
    assert len(unseen) == 2


def test_coding() -> None:
    dates = pd.to_datetime(["1970-01-02", None])
    frame = pd.DataFrame({"n": [1, 2], "t": ["a", None], "d": dates, "b": [True, False]})
    frame = numbers_as_floats(frame)
    values = Coder(frame)(frame).values
    np.testing.assert_array_equal(values, [[1, 0, 86400, 1], [2, MISSING, MISSING, 0]])
    new = Coder(frame)(frame.assign(t=["z", "a"]))
    assert new.values[:, 1].tolist() == [-1, 0]
    assert new.is_category.tolist() == [False, True, False, False]


# --- figures


def test_imputation_errors_by_hand() -> None:
    levels = {1: ["a", "b"]}
    truth = coded([0, 2, 0, 2], [0, 1, 0, 1], [5, 5, 5, 5], levels=levels)
    filled = coded([1, 2, 0, 5], [0, 0, MISSING, 1], [0, 5, 5, 5], levels=levels)
    removed = np.array([[1, 1, 1], [0, 1, 0], [0, 1, 0], [1, 0, 0]], dtype=bool)
    figures = imputation_figures(truth, filled, removed)
    # standard deviation 1; errors 1 and 3; the constant column does not count
    assert figures["rmse"] == pytest.approx(np.sqrt(5))
    assert figures["accuracy"] == pytest.approx(1 / 3)
    assert figures["cells"] == 6
    numbers = coded([0, 2, 0, 2])
    assert imputation_figures(numbers, numbers, removed[:, :1])["accuracy"] is None


def test_gower_distances_by_hand() -> None:
    levels = {1: ["a", "b"]}
    fit = coded([0, 4, MISSING], [0, 1, MISSING], levels=levels)
    asked = coded([1, MISSING], [0, 1], levels=levels)
    expected = [[(0.25 + 0) / 2, (0.75 + 1) / 2, 1.0], [1.0, 0.0, 1.0]]
    np.testing.assert_allclose(gower_distances(fit, asked), expected)
    nearest = np.array([[0, 1], [1, 0]])
    found = neighbour_figures(nearest, np.array(["p", "q", "q"]), np.array(["p", "q"]))
    assert found == {"precision": 0.5}


def test_pooled_errors_by_hand() -> None:
    truth, filled = coded([0, 2, 8], [0, 4, 0]), coded([0, 2, 9], [0, 0, 0])
    removed = np.array([[0, 0], [0, 1], [1, 0]], dtype=bool)
    # what is left: 0, 2 (deviation 1) and 0, 0 in the second, which then counts as it is
    found = pooled_figures(truth, filled, removed)
    assert found["rmse"] == pytest.approx(np.sqrt((1 + 16) / 2))
    assert found["mae"] == pytest.approx(2.5)
    assert found["accuracy"] is None


def test_intervals_by_hand() -> None:
    truth = coded([0, 2, 0, 2])
    removed = np.array([[1], [1], [0], [0]], dtype=bool)
    known = coded([MISSING, MISSING, 0, 2])
    figures = interval_figures(truth, coded([-1, 0, 0, 0]), coded([1, 1, 2, 2]), removed, known)
    assert figures["coverage"] == 0.5
    # widths 2 and 1, a miss by 1 costs 2 / .1; own quantiles .1 and 1.9 miss both by .1
    assert figures["interval_score"] == pytest.approx((2 + 1 + 20) / 2)
    assert figures["relative_score"] == pytest.approx(11.5 / (1.8 + 2))
    texts = coded([0, 1, 0, 1], levels={0: ["a", "b"]})
    assert interval_figures(texts, texts, texts, removed, texts)["coverage"] is None


def test_distances_by_hand() -> None:
    levels = {1: ["a", "b"]}
    train = coded([-1, 1], [0, 1], levels=levels)
    asked = coded([-1, -1], [0, 1], levels=levels)
    assert nearest(train, asked)[0].tolist() == pytest.approx([0, 1])  # only the category differs
    raw = standardised(train, coded([MISSING, 3], [MISSING, 0], levels=levels))[1]
    assert raw.tolist() == [[0, 0, 0], [3, 1, 0]]


def test_sampled_rows() -> None:
    rng = np.random.default_rng(0)
    real = rng.normal(size=(400, 2))
    assert separability(real, rng.normal(size=(400, 2)), 0) < 0.6
    assert separability(real, real + 5, 0) > 0.99
    lacking = coded([MISSING, MISSING, 1], [1, 2, 3])
    complete = coded([1, 2, 3, 4], [1, 2, 3, 4])
    given = with_missing_cells(complete, lacking, 0).values
    assert 0 < np.isnan(given[:, 0]).sum() <= 4
    assert not np.isnan(given[:, 1]).any()
    assert with_missing_cells(lacking, lacking, 0) is lacking


def test_detectors() -> None:
    # three of four values are at most 0, one is at least 9
    scores = ecod(np.array([[0.0], [0.0], [0.0], [9.0]]), None, 0)
    assert scores[:3] == pytest.approx(-np.log(3 / 4))
    assert scores[3] == pytest.approx(np.log(4))
    rng = np.random.default_rng(0)
    rows = np.vstack([rng.normal(size=(99, 2)), [[9, 9]]])
    for name, detect in DETECTORS.items():
        assert detect(rows, None, 0).argmax() == 99, name
        assert detect(rows[:99], rows[90:], 0).argmax() == 9, name


@pytest.mark.filterwarnings("ignore")  # a probe on few rows need not converge
def test_probes() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    y = np.where(x[:, 0] > 0, "yes", "no")
    found = probe_figures(x[:300], y[:300], x[300:], y[300:], is_regression=False)
    assert found["score"] > 0.95
    assert found["labels_50"] > 0.8
    linear = probe_figures(x[:300], x[:300, 1], x[300:], x[300:, 1], is_regression=True)
    assert linear["score"] > 0.99
    noisy = np.where(rng.random(400) < 0.3 * (x[:, 1] > 0), "yes", y)
    scores = {"good": x[300:, 1], "flat": np.zeros(100)}
    errors = error_figures(x[:300], noisy[:300], x[300:], noisy[300:], scores, 0)
    assert errors["scores"]["good"]["gain"] > 0
    assert errors["scores"]["flat"]["gain"] == pytest.approx(0)
    assert "own_confidence" in errors["scores"]


# --- peers and masks


@pytest.mark.parametrize("name", ["mean_mode", "boosting", "miss_forest"])
def test_imputers_learn_from_known_rows_only(name: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    frame = pd.DataFrame({"x": x, "y": 2 * x, "c": np.where(x > 0, "p", "n")})
    removed = removed_cells(frame, 0)
    coder = Coder(remove(frame, removed), frame)
    known, unseen = (
        coder(remove(frame, removed).iloc[rows]) for rows in (slice(150), slice(150, None))
    )
    fill = peers.IMPUTERS[name]
    filled = fill(known, unseen, 0)
    there = ~np.isnan(unseen.values)
    assert (filled.values[there] == unseen.values[there]).all()
    assert not np.isnan(filled.values).any()
    # rows that are filled do not depend on each other
    alone = fill(known, CodedTable(unseen.values[:7], unseen.levels), 0)
    np.testing.assert_allclose(alone.values, filled.values[:7])
    truth = coder(frame.iloc[150:])
    figures = imputation_figures(truth, filled, removed[150:])
    assert figures["rmse"] > 0.8 if name == "mean_mode" else figures["rmse"] < 0.7


def test_missing_at_random() -> None:
    rows, observed = mar_draws(1000, 10, mask=1)
    assert len(set(rows)) == 700
    assert (mar_draws(1000, 10, mask=1)[1] == observed).all()
    assert len(observed) == 3
    values = np.random.default_rng(0).normal(size=(4000, 10))
    removed = mar_cells(values, observed, seed=0)
    assert not removed[:, observed].any()
    assert removed.mean() == pytest.approx(0.3, abs=0.01)


# --- groups of jobs


class Fake:
    """What the ground asks of a contender."""

    fits = 0
    collapse_ = SimpleNamespace(collapsed=False, active_share=0.75, silent_features=())

    def __init__(self, random_state: int, device: str) -> None:
        self.random_state = random_state

    def set_params(self, **parameters: Any) -> Fake:
        return self

    def fit(self, X: pd.DataFrame) -> Fake:
        Fake.fits += 1
        self.X = X
        return self

    def impute(self, X: pd.DataFrame) -> pd.DataFrame:
        centres = {n: c.mean() if c.dtype.kind == "f" else c.mode()[0] for n, c in self.X.items()}
        return X.fillna(centres)

    def transform(self, X: pd.DataFrame) -> Any:
        return Coder(self.X, X)(X).values

    def uncertainty(self, X: pd.DataFrame, kind: str = "nll") -> Any:
        return np.abs(X.iloc[:, 0].to_numpy())

    def sample(self, n: int) -> pd.DataFrame:
        return self.X.sample(n, replace=True, random_state=0)


class WithIntervals(Fake):
    def predict_cells(self, X: pd.DataFrame, coverage: float) -> Any:
        ends = [X.assign(a=end)[["a"]] for end in (-2.0, 2.0)]
        return SimpleNamespace(best=self.impute(X), lower=ends[0], upper=ends[1])


CONTENDER = Contender("tests.benchmarks.test_ground:Fake", {}, "cpu")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data" / "ground"
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=400)})
    frame["c"] = np.where(frame["a"] > 0, "p", "n")
    frame["target"] = np.where(rng.random(400) < 0.8, frame["c"], "n")
    (folder / "tables").mkdir(parents=True)
    frame.to_parquet(folder / "tables" / "penguins.parquet")
    (folder / "anomaly").mkdir()
    flags = (rng.random(400) < 0.1).astype(int)
    values = rng.normal(size=(400, 3)) + 9 * flags[:, None]
    np.savez(folder / "anomaly" / "wine.npz", X=values, y=flags)
    monkeypatch.setenv("VARJEPA_DATA", str(folder.parent))
    return tmp_path


@pytest.mark.filterwarnings("ignore")
def test_one_fit_serves_several_jobs(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fake, "fits", 0)
    shared = ("embed", "uncertainty", "similar", "sample", "collapse", "time")
    rows = measure(JobGroup("penguins", shared, OURS, 0, 300, CONTENDER))
    assert Fake.fits == 1
    assert [row["job"] for row in rows] == list(shared)
    by_job = {row["job"]: row["figures"] for row in rows}
    assert by_job["sample"]["distance_sampled"] == 0  # copies
    assert by_job["collapse"]["active_share"] == 0.75
    assert by_job["similar"]["precision"] > 0.6
    for peer in ("raw", "pca", "gower"):
        (one,) = measure(JobGroup("penguins", ("similar",), peer, 0, 300))
        assert one["figures"]["precision"] > 0.6
    assert by_job["time"]["rows_fitted"] == 225
    assert {"default", "mixture", "own_confidence"} <= {*by_job["uncertainty"]["scores"]}


@pytest.mark.filterwarnings("ignore")
def test_every_job_gives_figures(data: Path) -> None:
    group = JobGroup("penguins", ("impute_mcar",), OURS, 0, 400, CONTENDER)
    plain = measure(group)[0]
    assert 0.8 < plain["figures"]["rmse"] < 1.2
    assert "coverage" not in plain["figures"]
    kind = "tests.benchmarks.test_ground:WithIntervals"
    figures = measure(replace(group, contender=Contender(kind, {}, "cpu")))[0]["figures"]
    assert 0.9 < figures["coverage"] < 1
    assert figures["relative_score"] < 2
    mean = measure(replace(group, method="mean_mode"))[0]["figures"]
    assert mean["columns"] == plain["figures"]["columns"]
    unseen = measure(replace(group, jobs=("impute_unseen",)))[0]["figures"]
    assert 0 < unseen["cells"] < 100
    taught = measure(replace(group, jobs=("train_on_sampled",)))[0]["figures"]
    assert abs(taught["difference"]) < 0.1
    for method in (OURS, "knn"):
        for job in ("anomaly", "anomaly_normal"):
            row = measure(JobGroup("anomaly/wine", (job,), method, 0, 200, CONTENDER))[0]
            assert row["figures"]["auroc"] > 0.5
    assert load("anomaly/wine", 200).target.mean() == pytest.approx(
        load("anomaly/wine").target.mean(), abs=0.01
    )


OPTIONS = Options(
    ["penguins"], ["impute_mcar", "collapse"], [OURS, "mean_mode"], [0, 1], 300, CONTENDER
)


def test_rows_are_computed_once(data: Path) -> None:
    lines: list[str] = []
    out, cache = data / "ours", data / "peers" / "cache.json"
    assert run_ground(replace(OPTIONS, time_limit=0), out, cache, lines.append) == 0
    assert not cache.exists()
    assert run_ground(OPTIONS, out, cache, lines.append) == 0
    assert len(ResultStore(out / "ground.json", KEY, _settings).rows) == 4
    assert len(ResultStore(cache, KEY).rows) == 2
    lines.clear()
    assert run_ground(OPTIONS, out, cache, lines.append) == 0
    assert lines == ["0 groups of jobs"]
    other = replace(OPTIONS, contender=replace(CONTENDER, parameters={"d": 8}))
    with pytest.raises(InputError, match="other settings"):
        run_ground(other, out, cache, lines.append)


def _settings(row: Any) -> Any:
    return {"contender": CONTENDER.kind, "set": {}}


def test_a_failure_is_tried_again(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = running.measure

    def fails(group: JobGroup) -> Any:
        if group.method == "mean_mode":
            raise ValueError("no")
        return real(group)

    lines: list[str] = []
    out, cache = data / "ours", data / "cache.json"
    monkeypatch.setattr(running, "measure", fails)
    assert run_ground(OPTIONS, out, cache, lines.append) == 2
    assert any("mean_mode, seed 0: failed" in line and "no" in line for line in lines)
    monkeypatch.undo()
    monkeypatch.setenv("VARJEPA_DATA", str(data / "data"))
    assert run_ground(OPTIONS, out, cache, lines.append) == 0
    assert len(ResultStore(cache, KEY).rows) == 2


def test_a_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(peers.PACKAGES, "miceforest", "no-such-package")
    lines: list[str] = []
    options = replace(OPTIONS, methods=["miceforest", "mean_mode"])
    stores = {False: ResultStore(Path("nowhere.json"), KEY)}
    groups = missing_groups(options, stores, lines.append)
    assert {group.method for group in groups} == {"mean_mode"}
    assert lines == ["miceforest is left out: its package is not installed"]


def test_every_method_can_do_its_jobs() -> None:
    assert all(job in jobs.JOBS for able in jobs.METHODS.values() for job in able)
    assert not jobs.applies("uncertainty", "auto_mpg")
    assert not jobs.applies("anomaly_normal", "anomaly_mixed/bank")
    assert jobs.applies("impute_mar", "online_shoppers")


# --- results


def row(table: str, job: str, method: str, seed: int = 0, **figures: Any) -> dict[str, Any]:
    key = {"table": table, "job": job, "method": method, "seed": seed, "rows": 10_000}
    return {**key, "version": "", "figures": figures, "environment": {"torch": "2"}}


ROWS = [
    row("adult", "impute_mcar", OURS, 0, rmse=0.8, accuracy=0.7),
    row("adult", "impute_mcar", OURS, 1, rmse=1.0, accuracy=0.7),
    row("adult", "impute_mcar", OURS, 2, rmse=9.0, accuracy=0.0),  # a seed that no peer has
    row("adult", "impute_mcar", "boosting", rmse=1.0, accuracy=0.6),
    row("adult", "impute_mcar", "boosting", 1, rmse=1.0, accuracy=0.6),
    row("adult", "impute_mcar", "miss_forest", rmse=2.0, accuracy=0.9),
    row("adult", "impute_mcar", "mean_mode", rmse=0.85, accuracy=0.5),
    row("adult", "similar", OURS, precision=0.8),
    row("adult", "similar", "gower", precision=0.7),
    row("adult", "similar", "raw", precision=0.75),
    row("air_quality", "impute_mcar", OURS, rmse=2.0, accuracy=None),
    row("air_quality", "impute_mcar", "boosting", rmse=1.0, accuracy=None),
]


def test_merge(tmp_path: Path) -> None:
    files = [tmp_path / name / "ground.json" for name in ("one", "two")]
    for path, rows in zip(files, (ROWS[:4], ROWS[3:]), strict=True):
        path.parent.mkdir()
        ResultStore(path, KEY, lambda row: {"set": {}}).add(rows)
    out = tmp_path / "all" / "ground.json"
    assert merge(out, files) == len(ROWS) + 1
    merged = ResultStore(out, KEY, lambda row: {"set": {}}).rows
    assert len(merged) == len(ROWS)
    assert all(row["environment"] == {"torch": "2"} for row in merged)


def test_bars_are_judged_by_half() -> None:
    results = Results(ROWS)
    bars = {str(line[0]): line for line in bars_table(results).rows}
    ratio = bars["20 % MCAR, in-sample: RMSE over the better of boosting and missForest"]
    assert [str(cell) for cell in ratio[3:]] == ["0.900 (1)", "2.000 (1)", "1.342 (2)"]
    assert [getattr(cell, "mark", "") for cell in ratio[3:]] == ["better", "worse", "worse"]
    right = bars["categories right, in-sample, minus the better of the two"]
    assert str(right[3]) == "-0.200 (1)"
    assert getattr(right[4], "mark", "") == "missing"
    worse = bars["worse than mean or mode by more than 1 %"]
    assert str(worse[3]) == "1 of 2: adult rmse mcar"
    near = bars["precision@10 of similar rows, better than the best of Euclidean, Gower, PCA"]
    assert str(near[3]) == "100%, mean +0.050 (1)"
    assert len(bars) >= 18
    order = [str(line[0]) for line in detail_table(results, DETAILS[0]).rows]
    assert order == ["air_quality", "adult"]  # worst first


def test_seconds_of_a_fit_count_on_a_cpu_alone() -> None:
    sizes = row("adult", "time", OURS, rows_fitted=300, columns=8)
    for device, seconds in (("cpu", 19.0), ("cuda", None)):
        timed = {
            **row("adult", "impute_mcar", OURS, fit_seconds=19.0),
            "environment": {"device": device},
        }
        assert Results([sizes, timed]).get("impute_mcar", OURS, "adult", "fit_seconds") == seconds


def committed_bars() -> Table:
    rows = [
        row for name in ("ground", "ground-peers") for row in read_rows(RESULTS / f"{name}.json")
    ]
    return bars_table(Results(rows))


def test_the_bars_of_the_readme_are_those_of_the_committed_rows() -> None:
    readme = (RESULTS.parent / "README.md").read_text("utf-8")
    assert markdown(committed_bars(), level=0) in readme


def test_every_pair_of_the_main_readme_is_a_bar() -> None:
    """Development · reporting, without zeros in front and the number of tables."""
    pairs = {" · ".join(map(plain, line[3:5])) for line in committed_bars().rows}
    lines = (RESULTS.parents[1] / "README.md").read_text("utf-8").splitlines()
    cells = [line.split("|")[2].strip() for line in lines if line.startswith("|")]
    quoted = [cell for cell in cells if re.fullmatch(r"[^ *]+( ×)? · [^ *]+( ×)?", cell)]
    assert len(quoted) >= 12
    assert set(quoted) <= pairs


def plain(cell: str | Cell) -> str:
    text = re.sub(r" \(\d+\)$", "", str(cell)).replace("-", "−")
    return re.sub(r"^([+−]?)0\.", r"\1.", text)


def test_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_ground_page(ROWS, tmp_path / "ground.html")
    assert "air_quality" in (tmp_path / "ground.html").read_text()
    assert "| ▲ 0.900 (1) | ▼ 2.000 (1) |" in (tmp_path / "ground.md").read_text()
    store = tmp_path / "rows" / "ground.json"
    store.parent.mkdir()
    ResultStore(store, KEY).add(ROWS)
    with pytest.raises(SystemExit) as done:
        commands.main(["summary", str(store), "--peers", str(tmp_path / "none.json")])
    assert done.value.code == 0
    assert "0.900 (1)" in capsys.readouterr().out
    with pytest.raises(SystemExit) as done:
        commands.main(["--set", "training__epochs", "--tables", "adult", "--device", "cpu"])
    assert done.value.code == 2
