"""Claims about checkpoints of a training.

1. Stopped at any step, between two validations or inside one, a training goes on to the same
   weights, optimiser, generators and history as without the stop, to the last bit; so do padded
   steps.
2. A checkpoint is complete or not there: the newest two stay, each with a manifest; a damaged one
   falls back to the one before with a warning; what a killed process left behind is removed.
3. Another table, other settings, labels or another version are refused in a sentence that names
   them.
4. Ctrl-C and SIGTERM are held until the step is over, and delivered at once within a validation;
   handlers are put back, and a second signal is not held.
5. They take about 1 % of the time at most, unless every step is asked for.
6. Starting over sets an unfinished training aside; two trainings do not share a folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.small import fit_small
from tests.training.test_loop import SETTINGS, SHAPE, WEIGHTS, build, padded_stepper, table
from varjepa import VarTJEPA
from varjepa.errors import InputError
from varjepa.estimators import TJEPA
from varjepa.models.t_jepa import TJepa
from varjepa.randomness import seeded_weights
from varjepa.settings import PointArchitecture, PointObjective, Training
from varjepa.tables.codec import EncodedTable
from varjepa.training.checkpoints import (
    Checkpoints,
    DeferredSignals,
    checkpointing,
    complete_checkpoints,
    remove_checkpoints,
)
from varjepa.training.loop import HeldOutLoss, Selection, TrainingResult, train
from varjepa.training.losses import Loss, TJepaLoss, VarTJepaLoss

ROWS = table(200)  # three batches of 64 and one of 8
SHORT = replace(SETTINGS, epochs=6, validate_every=2)
STEPS = 24


class Killed(BaseException):
    """The process ended here."""


def var_t_jepa() -> VarTJepaLoss:
    return VarTJepaLoss(build(), WEIGHTS)


def t_jepa() -> TJepaLoss:
    settings = PointArchitecture(d=8, depth=1, heads=2, ff=16, predictor_width=8, predictor_depth=1,
                             predictor_heads=2, predictor_ff=16)  # fmt: skip
    with seeded_weights(0):
        return TJepaLoss(TJepa(SHAPE, settings), PointObjective())


def run(
    folder: Path,
    make: Callable[[], Loss] = var_t_jepa,
    stop_at: int | None = None,
    every: float = 0.0,
    resume: bool = True,
    selection: Any = None,
    settings: Training = SHORT,
    rows: EncodedTable = ROWS,
) -> TrainingResult:
    def on_step(step: int, total: int) -> None:
        if step == stop_at:
            raise Killed

    with checkpointing(folder, every, resume) as checkpoints:
        return train(
            make(), rows, settings, selection or HeldOutLoss(rows, 0), 0,
            on_step=on_step, checkpoints=checkpoints, past=checkpoints.latest(),
        )  # fmt: skip


def fingerprint(folder: Path) -> tuple[str, str]:
    """SHA-256 of all tensors of the last checkpoint, and of the history but for the seconds."""
    number = complete_checkpoints(folder)[-1]
    facts = json.loads((folder / f"{number}.json").read_text(encoding="utf-8"))
    assert facts.pop("finished")
    for record in (facts, *facts["history"]):
        del record["seconds"]
    tensors = (folder / f"{number}.safetensors").read_bytes()
    return tuple(hashlib.sha256(x).hexdigest() for x in (tensors, json.dumps(facts).encode()))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The end of a training that was not stopped."""
    folder = tmp_path_factory.mktemp("whole")
    run(folder, every=1e6)
    return fingerprint(folder)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that ended in its tenth step; its last checkpoint is of the ninth."""
    folder = tmp_path_factory.mktemp("stopped")
    with pytest.raises(Killed):
        run(folder, stop_at=10)
    return folder


@pytest.mark.parametrize("make", [var_t_jepa, t_jepa])
@pytest.mark.parametrize("padded", [False, True])
def test_a_stop_at_any_step_changes_nothing(
    tmp_path: Path, make: Callable[[], Loss], padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if padded:
        monkeypatch.setattr("varjepa.training.loop.make_stepper", padded_stepper)
    run(tmp_path / "whole", make, every=1e6)
    # inside an epoch; after its last step, before a validation; right after one; twice in a row
    for stop_at in (2, 8, 9, 10, STEPS):
        with pytest.raises(Killed):
            run(tmp_path / "parts", make, stop_at)
    result = run(tmp_path / "parts", make)
    assert fingerprint(tmp_path / "parts") == fingerprint(tmp_path / "whole")
    assert [record["epoch"] for record in result.history] == [1, 2, 3, 4, 5, 6]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_recorded_steps_go_on_too(tmp_path: Path) -> None:
    rows = EncodedTable(ROWS.num.cuda(), ROWS.cat.cuda(), None)

    def make() -> Loss:
        objective = var_t_jepa()
        objective.model.cuda()
        return objective

    run(tmp_path / "whole", make, every=1e6, rows=rows)
    for stop_at in (2, 4, 9, STEPS):
        with pytest.raises(Killed):
            run(tmp_path / "parts", make, stop_at, rows=rows)
    run(tmp_path / "parts", make, rows=rows)
    assert fingerprint(tmp_path / "parts") == fingerprint(tmp_path / "whole")


def test_the_result_of_a_finished_training_comes_back(tmp_path: Path) -> None:
    first = run(tmp_path, every=1e6)
    again = run(tmp_path)
    assert (again.best_epoch, again.best_score) == (first.best_epoch, first.best_score)
    assert again.history == first.history  # the seconds too


def test_patience_is_remembered(tmp_path: Path) -> None:
    class Falling(Selection):
        name = "falling"

        def score(self, loss: Loss) -> float:
            return -float(sum(p.detach().abs().sum() for p in loss.model.parameters()))

    settings = replace(SHORT, validate_every=1, patience=2, learning_rate=0.1)
    whole = run(tmp_path / "whole", settings=settings, selection=Falling())
    assert len(whole.history) < settings.epochs
    with pytest.raises(Killed):
        run(tmp_path / "parts", settings=settings, selection=Falling(), stop_at=6)
    parts = run(tmp_path / "parts", settings=settings, selection=Falling())
    assert parts.best_epoch == whole.best_epoch
    assert len(parts.history) == len(whole.history)


# --- on disk


def test_two_complete_checkpoints_stay(tmp_path: Path) -> None:
    run(tmp_path)
    numbers = complete_checkpoints(tmp_path)
    assert numbers == [STEPS, STEPS + 1]  # one a step, and one of the end
    names = {path.name for path in tmp_path.iterdir()}
    ends = (".json", ".safetensors", ".manifest.json")
    assert names == {f"{number}{end}" for number in numbers for end in ends}
    for number in numbers:
        manifest = json.loads((tmp_path / f"{number}.manifest.json").read_text(encoding="utf-8"))
        for end, expected in manifest["sha256"].items():
            content = (tmp_path / f"{number}{end}").read_bytes()
            assert hashlib.sha256(content).hexdigest() == expected


@pytest.mark.parametrize("end", [".json", ".safetensors", ".manifest.json"])
@pytest.mark.parametrize("how", ["flip", "cut", "remove"])
def test_a_damaged_checkpoint_falls_back(
    tmp_path: Path, stopped: Path, whole: tuple[str, str], end: str, how: str
) -> None:
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    newest = complete_checkpoints(tmp_path)[-1]
    path = tmp_path / f"{newest}{end}"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if how == "flip":
        path.write_bytes(content)
    elif how == "cut":
        path.write_bytes(content[:100])
    else:
        path.unlink()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run(tmp_path, every=1e6)
    said = [str(w.message) for w in found]
    if (end, how) == (".manifest.json", "remove"):
        assert not said  # then it was never complete
    else:
        assert len(said) == 1
        assert f"{newest}." in said[0]
        assert "older checkpoint" in said[0]
    assert fingerprint(tmp_path) == whole
    checkpoints = Checkpoints(tmp_path, 0)
    for number in complete_checkpoints(tmp_path):
        checkpoints._read(number)  # the damaged one is gone


def test_nothing_but_damage_is_said(tmp_path: Path, stopped: Path) -> None:
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    for path in tmp_path.glob("*.safetensors"):
        path.write_bytes(b"x")
    with (
        pytest.warns(UserWarning, match="SHA-256"),
        pytest.raises(InputError, match=r"no checkpoint in .* can be read"),
    ):
        run(tmp_path)


def test_orphans_go_at_the_next_start(tmp_path: Path, stopped: Path) -> None:
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    for name in (".10.json.abc_4567.tmp", "10.json", "10.safetensors"):
        (tmp_path / name).write_bytes(b"half a checkp")
    (tmp_path / "mine.json").write_bytes(b"{}")
    with checkpointing(tmp_path, 0.0, resume=True):
        names = {path.name.split(".")[0] for path in tmp_path.iterdir()}
    assert names == {"8", "9", "mine", ""}  # the last one is the lock's


def test_a_failing_write_keeps_the_older_ones(
    tmp_path: Path, stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("varjepa.training.checkpoints.write_bytes", full)
    with pytest.raises(InputError, match="No space left on device; earlier ones are as they were"):
        run(tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_two_trainings_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        checkpointing(tmp_path, 0.0, resume=True),
        pytest.raises(InputError, match="another varjepa process"),
        checkpointing(tmp_path, 0.0, resume=True),
    ):
        pass


def test_starting_over_sets_an_unfinished_training_aside(tmp_path: Path, stopped: Path) -> None:
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    kept = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.warns(UserWarning, match="not finished; this one starts over"):
        run(tmp_path, every=1e6, resume=False)
    assert {p.name: p.read_bytes() for p in (tmp_path / "set-aside").iterdir()} == kept
    run(tmp_path, every=1e6, resume=False)  # the one before was finished: not a word


def test_the_cost_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("varjepa.training.checkpoints.time.monotonic", lambda: now[0])

    def slowly(path: Path, content: bytes) -> None:
        now[0] += 1.0

    monkeypatch.setattr("varjepa.training.checkpoints.write_bytes", slowly)
    checkpoints = Checkpoints(tmp_path, 30.0)
    saves = 0
    while now[0] < 3000:
        now[0] += 0.5  # a step
        if checkpoints.is_due():
            checkpoints.save({}, {})
            saves += 1
    assert saves * 3.0 / now[0] <= 0.0101
    assert saves >= 9
    assert Checkpoints(tmp_path, 0.0).is_due()


# --- what a training is about

SMALL: dict[str, Any] = {
    "d": 8, "depth": 1, "heads": 2, "ff": 8, "predictor_width": 8, "predictor_depth": 1,
    "predictor_heads": 2, "predictor_ff": 8, "epochs": 3, "validate_every": 1, "random_state": 0,
}  # fmt: skip
FRAME = pd.DataFrame(
    {
        "size": np.random.default_rng(0).normal(size=60),
        "colour": np.random.default_rng(1).choice(["red", "green", None], 60),
    }
)
LABELS = (FRAME["size"] > 0).to_numpy()


def fit(folder: Path, X: pd.DataFrame = FRAME, y: Any = None, **more: Any) -> TJEPA:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the latents have collapsed")
        parameters = {**SMALL, "checkpoint_dir": str(folder), "resume": True, **more}
        return fit_small(TJEPA, X, y, **parameters)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"epochs": 4}, "epochs was 3 and is 4"),
        ({"random_state": 1}, "seed was"),
        ({"momentum": (0.9, 1.0)}, r"momentum was \[0.996, 1.0\] and is \[0.9, 1.0\]"),
        ({"X": FRAME.assign(size=FRAME["size"] ** 3)}, "other values in 'size'"),
        ({"X": FRAME.assign(colour=FRAME["colour"][::-1].array)}, "other values in 'colour'"),
        ({"X": FRAME.assign(colour="red")}, "not the same: 'colour'"),  # a constant is left out
        ({"X": FRAME[:50]}, "had 60 rows and has 50"),
        ({"X": FRAME.rename(columns={"size": "mass"})}, "not the same: 'mass', 'size'"),
        ({"y": LABELS}, "the labels are others"),
    ],
)
def test_another_training_is_refused(tmp_path: Path, change: Any, says: str) -> None:
    fit(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(InputError, match=says):
        fit(tmp_path, **change)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_what_changes_no_weight_is_not_refused(tmp_path: Path) -> None:
    one = fit(tmp_path)
    other = fit(tmp_path, output="mean", verbose=0, capture=False, epochs=np.int64(3))
    for name, weight in one.model_.state_dict().items():
        assert torch.equal(weight, other.model_.state_dict()[name])


def test_a_fit_without_a_seed_goes_on_with_the_checkpoints(tmp_path: Path) -> None:
    one, other = (fit(tmp_path, random_state=None) for _ in range(2))
    assert one.seed_ == other.seed_
    np.testing.assert_array_equal(one.transform(FRAME), other.transform(FRAME))


def test_another_machine_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit(tmp_path)
    monkeypatch.setattr("varjepa.environment.torch.__version__", "1.0.0")
    with pytest.warns(UserWarning, match=r"the checkpoint was written by torch .* last digits"):
        fit(tmp_path)


def test_checkpoints_are_no_part_of_a_model(tmp_path: Path) -> None:
    model = fit(tmp_path / "checkpoints")
    model.save(tmp_path / "model")
    parameters = json.loads((tmp_path / "model" / "config.json").read_text("utf-8"))["parameters"]
    assert "checkpoint" not in json.dumps(parameters)
    assert TJEPA.load(tmp_path / "model").get_params() == model.get_params() | {
        name: model.settings(name) for name in model.settings_kinds
    }


@pytest.mark.parametrize(
    ("wrong", "says"), [({"resume": True}, "checkpoint_dir"), ({"checkpoint_every": -1.0}, "-1.0")]
)
def test_wrong_parameters(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        fit_small(VarTJEPA, FRAME, **wrong)


# --- signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_step(
    tmp_path: Path, whole: tuple[str, str], number: signal.Signals
) -> None:
    class Told(Exception):  # noqa: N818 - nothing went wrong
        pass

    def handler(*_: object) -> None:
        raise Told

    def on_step(step: int, total: int) -> None:
        if step == 7:
            os.kill(os.getpid(), number)
            assert step == 7  # nothing happens yet

    before = signal.signal(number, handler)
    try:
        with pytest.raises(Told), checkpointing(tmp_path, 1e6, resume=True) as checkpoints:
            train(
                var_t_jepa(), ROWS, SHORT, HeldOutLoss(ROWS, 0), 0,
                on_step=on_step, checkpoints=checkpoints,
            )  # fmt: skip
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)
    latest = Checkpoints(tmp_path, 0.0).latest()
    assert latest is not None
    assert latest.facts["step"] == 7
    run(tmp_path, every=1e6)
    assert fingerprint(tmp_path) == whole


def test_a_signal_ends_a_validation_at_once(tmp_path: Path, whole: tuple[str, str]) -> None:
    class Slow(Selection):
        name = "held-out objective"

        def score(self, loss: Loss) -> float:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
            return 0.0

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, every=1e6, selection=Slow())
    assert time.monotonic() - start < 10
    latest = Checkpoints(tmp_path, 0.0).latest()
    assert latest is not None
    assert latest.facts["step"] == 8  # the last of the second epoch
    run(tmp_path, every=1e6)
    assert fingerprint(tmp_path) == whole


def test_a_signal_after_the_last_step_is_not_lost() -> None:
    saved = []
    with pytest.raises(KeyboardInterrupt), DeferredSignals(lambda: saved.append(1)):
        os.kill(os.getpid(), signal.SIGINT)
    assert not saved


def test_a_second_signal_is_not_held() -> None:
    reached = 0
    with pytest.raises(KeyboardInterrupt), DeferredSignals(lambda: None) as signals:
        os.kill(os.getpid(), signal.SIGINT)
        reached = 1
        assert signals.waiting == signal.SIGINT
        os.kill(os.getpid(), signal.SIGINT)
        reached = 2
    assert reached == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ignored_signals_stay_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with DeferredSignals(lambda: None) as signals:
            os.kill(os.getpid(), signal.SIGTERM)
            assert signals.waiting is None
    finally:
        signal.signal(signal.SIGTERM, before)


def test_only_checkpoints_are_removed(tmp_path: Path) -> None:
    run(tmp_path, every=0)
    (tmp_path / "9.safetensors").write_bytes(b"half")  # of a save that was killed
    (tmp_path / "precious.pt").write_bytes(b"mine")
    (tmp_path / "set-aside").mkdir()
    (tmp_path / "set-aside" / "1.json").write_text("{}")
    remove_checkpoints(tmp_path)
    left = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file())
    assert left == ["precious.pt", "set-aside/1.json"]
    (tmp_path / "precious.pt").unlink()
    (tmp_path / "set-aside" / "1.json").unlink()
    (tmp_path / "set-aside").rmdir()
    remove_checkpoints(tmp_path)
    assert not tmp_path.exists()
    remove_checkpoints(tmp_path)  # nothing there is nothing to do
