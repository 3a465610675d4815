"""Claims about the result store and the study loop.

1. Rows are ordered by key and replaced; the file is whole on disk.
2. Rows of other settings, another version or another program are refused and stay as they are; a
   setting that came later and is None changes nothing.
3. Settings and environments are shared on disk.
4. The loop computes exactly the seeds that lack a row, saves after every job, and an interruption
   loses only the job that runs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from paper.store import (
    FORMAT_VERSION,
    ORIGINS_FILE,
    Job,
    ResultStore,
    Row,
    plain,
    read_rows,
    run_jobs,
)
from varjepa.errors import InputError, Interrupted
from varjepa.files import study_folder


@dataclass(frozen=True)
class Settings:
    epochs: int = 3
    inner: tuple[int, int] = (1, 2)


def opened(path: Path, epochs: int = 3) -> ResultStore:
    def settings(row: Row) -> object:
        return {**plain(Settings(epochs)), "weight": {"A": 1, "B": 2}[row["variant"]]}

    return ResultStore(path, ("variant", "run"), settings)


def test_rows_are_kept_ordered_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    opened(path).add([{"variant": "B", "run": 0, "value": 1}])
    file = opened(path)
    file.add([{"variant": "A", "run": 1, "value": 2}, {"variant": "B", "run": 0, "value": 3}])
    assert [(r["variant"], r["value"]) for r in opened(path).rows] == [("A", 2), ("B", 3)]
    assert opened(path).has(variant="A", run=1)
    assert not opened(path).has(variant="A", run=0)


def test_rows_of_other_settings_are_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    opened(path).add([{"variant": "A", "run": 0}])
    before = path.read_bytes()
    with pytest.raises(InputError, match="other settings \\(epochs 3 there, 4 here\\)"):
        opened(path, epochs=4)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [
        {},
        [1],
        [{"variant": "A"}],
        [{"variant": "A", "run": 0, "settings": {}}],
        [{"variant": "Z", "run": 0, "settings": {}, "format_version": 1}],
        "x",
    ],
)
def test_foreign_files_are_refused_and_kept(tmp_path: Path, content: object) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="was not written by this version"):
        opened(path)
    assert json.loads(path.read_text()) == content


def test_another_format_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    opened(path).add([{"variant": "A", "run": 0}])
    rows = json.loads(path.read_text())
    rows[0]["format_version"] = FORMAT_VERSION + 1
    path.write_text(json.dumps(rows))
    with pytest.raises(InputError, match=f"format version {FORMAT_VERSION + 1}"):
        opened(path)


def test_rows_of_another_objective_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    opened(path).add([{"variant": "A", "run": 0}])
    rows = read_rows(path)
    rows[0]["settings"]["weight"] = 7
    path.write_text(json.dumps(rows))
    with pytest.raises(InputError, match="weight 7 there, 1 here"):
        opened(path)


def test_a_setting_that_came_later_and_is_off_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    opened(path).add([{"variant": "A", "run": 0}])

    def later(value: object) -> ResultStore:
        def settings(row: Row) -> object:
            return {**plain(Settings()), "weight": 1, "new": value}

        return ResultStore(path, ("variant", "run"), settings)

    assert len(later(None).rows) == 1
    with pytest.raises(InputError, match="new None there, 5 here"):
        later(5)


def test_rows_share_their_settings_and_environment_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    machine = {"torch": "2.13", "cores": 2}
    rows = [{"variant": "A", "run": run, "environment": dict(machine)} for run in range(3)]
    opened(path).add(rows)
    on_disk = json.loads(path.read_text())
    assert len({row["settings"] for row in on_disk}) == 1
    origins = json.loads((tmp_path / ORIGINS_FILE).read_text())
    assert origins[on_disk[0]["environment"]] == machine
    assert all(row["environment"] == machine for row in opened(path).rows)
    opened(path).add([{"variant": "B", "run": 0, "environment": {**machine, "cores": 4}}])
    assert {row["environment"]["cores"] for row in opened(path).rows} == {2, 4}
    (tmp_path / ORIGINS_FILE).write_text("{}")
    with pytest.raises(InputError, match="does not say what settings"):
        opened(path)


def test_the_loop_computes_what_is_missing_and_saves_after_every_job(tmp_path: Path) -> None:
    asked: list[tuple[str, list[int]]] = []
    lines: list[str] = []

    def compute(job: Job, seeds: list[int]) -> list[Row]:
        if job.about["variant"] == "B" and not asked[1:]:
            raise KeyboardInterrupt
        asked.append((job.about["variant"], seeds))
        return [{"run": s, "part": p} for s in seeds for p in ("x", "y")]

    def store() -> ResultStore:
        return ResultStore(tmp_path / "rows.json", ("variant", "run", "part"))

    def jobs(runs: int) -> list[Job]:
        return [Job({"variant": v}, range(runs), {"part": ("x", "y")}, "run") for v in "AB"]

    def run(runs: int) -> None:
        with study_folder(tmp_path):
            run_jobs(store(), jobs(runs), compute, lines.append, lambda rows: rows[0]["variant"])

    with pytest.raises(Interrupted, match="finished cells are in"):
        run(1)
    assert asked == [("A", [0])]
    asked.append(("", []))  # B may be computed now
    run(2)
    assert asked[2:] == [("A", [1]), ("B", [0, 1])]
    assert lines == ["A", "A", "B"]
    assert len(store().rows) == 8
    rows = [row for row in store().rows if row["part"] == "x" or row["run"] == 1]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    run(2)  # one part of a seed is not enough
    assert asked[4:] == [("A", [0]), ("B", [0])]
