"""Claims about rows that come in windows, and about ``max_steps``.

1. Every window holds the codec's encoding of the rows that it names, missing cells included; any
   may come after any, and the tensors stay where they are.
2. A file that is spoilt while the next window is read is an error of the epoch that needs it, and
   nothing hangs.
3. A training in windows goes on from a checkpoint to the same bits as without the interruption.
4. ``max_steps`` ends a training there, in the middle of an epoch or before the last, with a
   validation at the end; schedules reach their end then.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from tests.training.test_loop import SETTINGS, SMALL, WEIGHTS, build, padded_stepper, table
from varjepa.errors import InputError
from varjepa.models.var_t_jepa import VarTJepa
from varjepa.randomness import seeded_weights
from varjepa.settings import Training
from varjepa.tables import EncodedTable, TableCodec, read_table
from varjepa.tables.shuffling import ShuffledFiles
from varjepa.tables.streaming import TableFiles
from varjepa.training.checkpoints import checkpointing
from varjepa.training.loop import HeldOutLoss, TrainingResult, train
from varjepa.training.losses import VarTJepaLoss
from varjepa.training.step import Stepper
from varjepa.training.streamed_rows import WindowedRows, has_missing

ROWS, SIZE, EPOCHS = 600, 128, 6
HELD_OUT = np.arange(0, ROWS, 20)


@pytest.fixture(params=[False, True], ids=["complete", "with missing cells"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> TableFiles:
    rng = np.random.default_rng(0)
    for i in range(3):
        missing = rng.random(200) < 0.2 if request.param else None
        numbers = {f"n{j}": pa.array(rng.normal(size=200), mask=missing) for j in range(3)}
        words = {f"c{j}": rng.choice(["a", "b", "c"][: 3 - j], 200) for j in range(2)}
        path = tmp_path / f"{i}.parquet"
        pa.parquet.write_table(pa.table(numbers | words), path, row_group_size=70)
    return TableFiles.find(tmp_path)


def rows_of(encoded: EncodedTable) -> EncodedTable:
    return encoded


def windows(files: TableFiles, codec: TableCodec | None = None) -> WindowedRows:
    codec = codec or TableCodec.fit(whole_table(files))
    sample = rows_of(codec.encode(whole_table(files).slice(0, 50)))
    return WindowedRows(ShuffledFiles(files, HELD_OUT, 0), codec, SIZE, EPOCHS, sample)


def whole_table(files: TableFiles) -> pa.Table:
    return pa.concat_tables([read_table(file.path) for file in files.files])


def test_windows_hold_the_rows_they_name(files: TableFiles) -> None:
    codec = TableCodec.fit(whole_table(files))
    expected = codec.encode(whole_table(files))
    source = windows(files, codec)
    places = [t.data_ptr() for t in (source.rows.num, source.rows.cat)]
    seen: dict[int, list[int]] = {}
    for epoch in (0, 1, 2, 5, 1, 3, 4):
        source.begin_epoch(epoch)
        numbers = source.places(torch.arange(SIZE))
        assert torch.equal(source.rows.num, expected.num[numbers])
        assert torch.equal(source.rows.cat, expected.cat[numbers])
        assert (source.rows.observed is not None) == has_missing(codec, ROWS)
        if source.rows.observed is not None:
            assert torch.equal(source.rows.observed, expected.observed[numbers])
        assert seen.setdefault(epoch, numbers.tolist()) == numbers.tolist()
    source.close()
    assert places == [t.data_ptr() for t in (source.rows.num, source.rows.cat)]
    sequence = [n for epoch in range(EPOCHS) for n in seen[epoch]]
    per_pass = ROWS - len(HELD_OUT)
    assert sorted(sequence[:per_pass]) == sorted(set(range(ROWS)) - set(HELD_OUT.tolist()))


def test_a_spoilt_file_is_an_error_of_its_epoch(files: TableFiles) -> None:
    source = windows(files)
    source.begin_epoch(0)
    assert source._reading is not None
    source._reading[1].result()
    for file in files.files:
        file.path.unlink()
    source.begin_epoch(1)  # read ahead
    with pytest.raises(InputError, match=r"\.parquet: No such file"):
        source.begin_epoch(2)
    source.close()


def trained(
    files: TableFiles, folder: Path, stop_at: int | None = None, resume: bool = False
) -> TrainingResult:
    """A training in windows, perhaps of some steps only; the newest checkpoint stays."""
    source = windows(files)
    shape_of = replace(SETTINGS, epochs=EPOCHS, batch_size=50, validate_every=2)
    with seeded_weights(0):
        model = VarTJepa(build().shape, SMALL)
    objective = VarTJepaLoss(model, WEIGHTS)
    selection = HeldOutLoss(source.sample, 0)

    def on_step(step: int, total: int) -> None:
        if step == stop_at:
            raise KeyboardInterrupt

    with checkpointing(folder, 0.0, resume) as checkpoints:
        past = checkpoints.latest() if resume else None
        return train(
            objective, source, shape_of, selection, 0,
            on_step=on_step, checkpoints=checkpoints, past=past,
        )  # fmt: skip


@pytest.mark.parametrize(("stop_at", "padded"), [(2, False), (4, False), (8, True), (13, False)])
def test_resumed_to_the_last_bit(
    files: TableFiles,
    tmp_path: Path,
    stop_at: int,
    padded: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if padded:  # as a GPU takes them
        monkeypatch.setattr("varjepa.training.loop.make_stepper", padded_stepper)
    trained(files, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        trained(files, tmp_path / "stopped", stop_at)
    trained(files, tmp_path / "stopped", resume=True)
    ends = [
        sorted((tmp_path / name).glob("*.safetensors"), key=lambda p: int(p.stem))[-1]
        for name in ("whole", "stopped")
    ]
    assert ends[0].read_bytes() == ends[1].read_bytes()


@pytest.mark.parametrize(
    ("most", "steps", "epochs"), [(None, 20, 5), (3, 3, 1), (4, 4, 1), (6, 6, 2), (99, 20, 5)]
)
def test_max_steps(most: int | None, steps: int, epochs: int) -> None:
    rows = table()
    settings = replace(SETTINGS, epochs=5, max_steps=most, validate_every=10, warm_up_share=0.05)
    falling = replace(settings, schedule="cosine")
    assert Stepper(VarTJepaLoss(build(), WEIGHTS), rows, falling, 0).rates_at(steps)[0] == 0
    selection = HeldOutLoss(rows, 0)
    taken = []
    result = train(
        VarTJepaLoss(build(), WEIGHTS), rows, settings, selection, 0,
        on_step=lambda step, total: taken.append((step, total)),
    )  # fmt: skip
    assert taken == [(i + 1, steps) for i in range(steps)]
    assert len(result.history) == result.best_epoch == epochs


def test_max_steps_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="max_steps must be at least 1, not 0"):
        Training(max_steps=0)
