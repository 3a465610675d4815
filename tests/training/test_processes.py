"""Claims about training with several processes, which are real ones and talk over gloo.

1. Two or three processes end with the same weights, to the last bit, and with the losses,
   validations and best epoch of one process within rounding; also where the last batch has fewer
   rows than there are processes, and where cells are missing.
2. All decide alike: a validation counts as the main process sees it, and a training that gives up
   does so everywhere, naming the rows.
3. Only the main process writes. A training that one process was asked to stop stops everywhere
   after the same step, with a checkpoint of it, and goes on with any number of processes: with as
   many as before to the last bit, with others within rounding.
4. A process that dies is noticed by the others within seconds.
5. Wrong input of one process is an error of all; processes with different tables are refused; a
   seed that was not given is the main process's.
6. Embeddings that processes share out are those of one process, to the last bit.
7. Two processes of one thread train at least 1.6 times as fast as one.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import shutil
import signal
import statistics
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.distributed as dist
from sklearn.base import clone
from torch import nn

from tests.small import small
from tests.training.test_loop import SETTINGS, SMALL, WEIGHTS, build, table
from varjepa.cli.shell import keep_freed_memory
from varjepa.errors import InputError
from varjepa.estimators import VarTJEPA
from varjepa.models.t_jepa import TJepa
from varjepa.nn.layers import TableShape
from varjepa.randomness import seeded_weights
from varjepa.settings import PointArchitecture, PointObjective, Run, Training
from varjepa.tables.codec import EncodedTable
from varjepa.tables.scaling import Bins
from varjepa.training.checkpoints import Checkpoints, broadcast_checkpoint, checkpointing
from varjepa.training.cuda_graphs import PaddedStepper
from varjepa.training.loop import (
    FilteredProbe,
    HeldOutLoss,
    LinearProbeSettings,
    Selection,
    TrainingResult,
    check_collapse,
    train,
)
from varjepa.training.losses import Loss, TJepaLoss, VarTJepaLoss
from varjepa.training.processes import (
    ALONE,
    LostProcessError,
    Place,
    World,
    connect,
    join_world,
    place_from_torchrun,
)
from varjepa.training.step import MAX_BAD_STEPS, Stepper, make_stepper

CPU = torch.device("cpu")
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__, "torch._dynamo"])  # which optimisers import late

SHORT = replace(SETTINGS, epochs=3, validate_every=2)
ROWS = table(129)  # two batches of 64, and one of a single row

Work = Callable[[World, Path], Any]


def run_together(work: Work, folder: Path, size: int = 2) -> tuple[list[Any], list[int | None]]:
    """What each process returned, None where it did not come so far; and the exit codes."""
    folder.mkdir(exist_ok=True)
    (folder / "store").unlink(missing_ok=True)  # where an earlier run met
    processes = [
        PROCESSES.Process(target=_process, args=(work, rank, size, folder)) for rank in range(size)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    paths = [folder / f"{rank}.json" for rank in range(size)]
    found = [json.loads(path.read_text()) if path.exists() else None for path in paths]
    return found, codes


def _process(work: Work, rank: int, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # a few epochs do collapse
    try:
        with connect(CPU, dist.FileStore(str(folder / "store"), size), rank, size) as world:
            result = work(world, folder)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    (folder / f"{rank}.json").write_text(json.dumps(result))
    os._exit(0)  # not through the fork server's imports


def sha256(model: nn.Module) -> str:
    found = hashlib.sha256()
    for weight in model.state_dict().values():
        found.update(weight.numpy().tobytes())
    return found.hexdigest()


def end_of(model: nn.Module, result: TrainingResult) -> dict[str, Any]:
    history = [{k: v for k, v in record.items() if k != "seconds"} for record in result.history]
    return {"weights": sha256(model), "history": history, "best_epoch": result.best_epoch}


def assert_same_within_rounding(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one["best_epoch"] == other["best_epoch"]
    assert len(one["history"]) == len(other["history"])
    for a, b in zip(one["history"], other["history"], strict=True):
        assert a.keys() == b.keys()
        for name in a.keys() - {"spread"}:  # of the rows computed together, so of fewer
            # a row more or less on the right side of the probe's border is rounding too
            loose = 0.03 if name == "filtered accuracy" else 0.0
            assert a[name] == pytest.approx(b[name], rel=1e-4, abs=loose), name


# --- the same training


def with_missing() -> EncodedTable:
    observed = torch.rand(129, 5, generator=torch.Generator().manual_seed(1)) > 0.2
    return EncodedTable(ROWS.num, ROWS.cat, observed)


def var_t_jepa() -> VarTJepaLoss:
    return VarTJepaLoss(build(), WEIGHTS)


def t_jepa() -> TJepaLoss:
    shared = {name: getattr(SMALL, name) for name in ("d", "depth", "heads", "ff")}
    with seeded_weights(0):
        return TJepaLoss(
            TJepa(TableShape(3, (4, 3)), PointArchitecture(**shared)), PointObjective()
        )


def filtered_probe(world: World) -> FilteredProbe:
    labels = ROWS.cat[:, 0] - 1
    return FilteredProbe(
        ROWS, labels, ROWS, labels, 3, LinearProbeSettings(), 0, standard_errors=1.0, world=world
    )


def train_all(world: World, folder: Path) -> list[dict[str, Any]]:
    """Both models, both ways to validate, complete rows and rows with missing cells."""
    cases: list[tuple[Loss, EncodedTable, Selection]] = [
        (var_t_jepa(), ROWS, HeldOutLoss(ROWS, 0, batch=64, world=world)),
        (var_t_jepa(), with_missing(), HeldOutLoss(with_missing(), 0, world=world)),
        (var_t_jepa(), ROWS, filtered_probe(world)),
        (t_jepa(), ROWS, HeldOutLoss(ROWS, 0, world=world)),
    ]
    ends = []
    for objective, rows, selection in cases:
        result = train(objective, rows, SHORT, selection, 0, world=world)
        ends.append(end_of(objective.model, result))
    return ends


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return train_all(ALONE, tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize("size", [2, 3])
def test_processes_end_with_one_process_model(
    tmp_path: Path, size: int, alone: list[dict[str, Any]]
) -> None:
    found, codes = run_together(train_all, tmp_path / "together", size)
    assert codes == [0] * size
    assert all(ends == found[0] for ends in found)  # weights and histories, to the last bit
    for one, many in zip(alone, found[0], strict=True):
        assert_same_within_rounding(one, many)
        assert one["weights"] != many["weights"]  # other sums: processes did share the rows


def pad(world: World, folder: Path) -> dict[str, Any]:
    """Steps with the shapes of recordings, which fill the last batch up."""
    objective = var_t_jepa()
    with PaddedStepper(objective, ROWS, SHORT, 0, world) as stepper:
        stepper.begin_epoch()
        for _ in range(stepper.steps_per_epoch):
            stepper.step()
        return {"weights": sha256(objective.model), **stepper.tally.read()}


def test_padded_steps_are_shared_too(tmp_path: Path) -> None:
    alone = pad(ALONE, tmp_path)
    (one, other), _ = run_together(pad, tmp_path / "together")
    assert one == other
    del alone["weights"], one["weights"]
    assert one == pytest.approx(alone, rel=1e-4)


def validate(world: World, folder: Path) -> list[Any]:
    objective = var_t_jepa()
    tokens = world.map_rows(lambda rows: (objective.embed(rows),), ROWS)[0]
    few = world.map_rows(lambda rows: (rows.num,), ROWS.take(slice(0, 1)))[0]
    return [
        hashlib.sha256(tokens.numpy().tobytes()).hexdigest(),
        few.tolist(),
        filtered_probe(world).score(objective),
        check_collapse(objective, ROWS, world).active_units,
    ]


def test_shared_validations_are_those_of_one_process(tmp_path: Path) -> None:
    found, _ = run_together(validate, tmp_path, 3)
    assert found == [validate(ALONE, tmp_path)] * 3


# --- decisions


class Opinion(Selection):
    """Every process has its own; the main one's gets worse from the second validation on."""

    name = "opinion"

    def __init__(self, rank: int) -> None:
        self.rank, self.validations = rank, 0

    def score(self, loss: Loss) -> float:
        self.validations += 1
        return self.validations if self.rank else -self.validations


def decide(world: World, folder: Path) -> list[Any]:
    objective = var_t_jepa()
    settings = replace(SHORT, epochs=20, validate_every=1, patience=3)
    result = train(objective, ROWS, settings, Opinion(world.rank), 0, world=world)
    sick = ROWS.take(torch.arange(len(ROWS)))
    sick.num[[5, 100]] = math.nan
    settings = replace(SHORT, epochs=30, batch_size=129, patience=30)
    try:
        train(var_t_jepa(), sick, settings, HeldOutLoss(ROWS, 0), 0, world=world)
        sentence = ""
    except InputError as error:
        sentence = str(error)
    return [end_of(objective.model, result), sentence]


def test_all_processes_decide_alike(tmp_path: Path) -> None:
    (one, other), codes = run_together(decide, tmp_path)
    assert codes == [0, 0]
    assert one == other
    end, sentence = one
    assert (end["best_epoch"], len(end["history"])) == (1, 4)
    assert f"{MAX_BAD_STEPS} steps in a row" in sentence
    assert {word.strip(",") for word in sentence.split("rows ")[1].split()} == {"5", "100"}


# --- checkpoints


def keep(world: World, folder: Path, stop: int = 0, resume: bool = True) -> dict[str, Any]:
    """A training that the last process is asked to stop after so many steps."""
    checkpointed = folder / f"of-{0 if world.is_main else world.rank}"

    def on_step(step: int, total: int) -> None:
        if step == stop and world.rank == world.size - 1:
            os.kill(os.getpid(), signal.SIGTERM)

    opened = checkpointing(checkpointed, 1e6, resume) if world.is_main else nullcontext()
    with opened as mine:
        checkpoints = mine or Checkpoints(checkpointed, 1e6)
        past = broadcast_checkpoint(mine.latest() if mine else None, checkpointed, world)
        objective = var_t_jepa()
        result = train(
            objective, ROWS, SHORT, HeldOutLoss(ROWS, 0, world=world), 0,
            on_step=on_step, checkpoints=checkpoints, past=past, world=world,
        )  # fmt: skip
    return end_of(objective.model, result)


def stop_at_5(world: World, folder: Path) -> Any:
    return keep(world, folder, stop=5)


def test_a_stopped_training_goes_on_with_any_number_of_processes(tmp_path: Path) -> None:
    (whole, _), _ = run_together(keep, tmp_path / "whole")
    _, codes = run_together(stop_at_5, tmp_path / "2")
    assert codes == [-signal.SIGTERM] * 2
    assert not (tmp_path / "2" / "of-1").exists()
    past = Checkpoints(tmp_path / "2" / "of-0", 0.0).latest()
    assert past is not None
    assert past.facts["step"] == 5
    for size in ("1", "3"):
        shutil.copytree(tmp_path / "2" / "of-0", tmp_path / size / "of-0")
    (again, other), codes = run_together(keep, tmp_path / "2")
    assert codes == [0, 0]
    assert again == other == whole
    for end in (keep(ALONE, tmp_path / "1"), run_together(keep, tmp_path / "3", 3)[0][2]):
        assert_same_within_rounding(end, whole)


def die(world: World, folder: Path) -> float:
    start = [0.0]

    def on_step(step: int, total: int) -> None:
        start[0] = time.monotonic()
        if step == 4 and world.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    selection = HeldOutLoss(ROWS, 0, world=world)
    with pytest.raises(LostProcessError):
        train(var_t_jepa(), ROWS, SHORT, selection, 0, on_step=on_step, world=world)
    return time.monotonic() - start[0]


def test_a_dead_process_is_noticed(tmp_path: Path) -> None:
    (seconds, *_), codes = run_together(die, tmp_path, 3)
    assert codes == [0, -signal.SIGKILL, 0]
    assert seconds < 10


# --- estimators


def frame(rows: int = 60, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"size": rng.normal(size=rows), "colour": rng.choice(["r", "g"], rows)})


def fit(world: World, folder: Path) -> list[Any]:
    """Every process has folders of its own, of which only the main one's may be used."""
    mine = folder / f"process-{world.rank}"
    sizes = {
        name: getattr(SMALL, name)
        for name in ("d", "depth", "heads", "ff", "predictor_width", "predictor_depth")
    }
    model = small(
        VarTJEPA, **sizes, predictor_heads=2, predictor_ff=16, epochs=4,
        validate_every=2,
    )  # fmt: skip
    run = Run(log_dir=mine / "log", checkpoint_dir=mine / "kept")
    X = frame()
    np.random.seed(world.rank)  # noqa: NPY002 - what random_state=None draws from
    model.fit(X, X["size"] > 0, run=run)
    ends = [[model.seed_, sha256(model.model_)]]
    again = clone(model).fit(X, X["size"] > 0, run=replace(run, resume=True))  # it has finished
    ends.append([again.seed_, sha256(again.model_)])
    sentences = []
    for X in (frame(seed=world.rank), frame(60 if world.is_main else 0)):
        try:
            clone(model).set_params(random_state=0).fit(X)
        except InputError as error:
            sentences.append(str(error))
    return [ends, sentences]


def test_estimators_fit_together(tmp_path: Path) -> None:
    (one, other), codes = run_together(fit, tmp_path)
    assert codes == [0, 0]
    assert one[0] == other[0]
    assert one[0][0] == one[0][1]
    different, empty = one[1]
    assert different == "process 1 of 2 sees another table or other options than process 0"
    assert empty.startswith("process 1 of 2: ")
    assert [different, empty.removeprefix("process 1 of 2: ")] == other[1]
    assert sorted(path.name for path in (tmp_path / "process-0").iterdir()) == ["kept", "log"]
    assert not (tmp_path / "process-1").exists()


# --- torchrun's environment


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}, Place(3, 4, 1)),
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}, None),
        ({"RANK": "0", "WORLD_SIZE": "4"}, None),
        ({"RANK": "x", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}, None),
        ({}, None),
    ],
)
def test_the_place_among_processes(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], expected: Place | None
) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    assert place_from_torchrun() == expected
    if expected is None:
        with join_world(CPU) as world:
            assert world is ALONE
    else:
        with pytest.raises(InputError, match="names one GPU"), join_world(torch.device("cuda:1")):
            pass
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        with pytest.raises(InputError, match="more processes"), join_world(torch.device("cuda")):
            pass


def test_parts_are_all_rows_once() -> None:
    for rows in (0, 1, 2, 7, 512):
        for size in (1, 2, 3, 8):
            parts = [World(rank, size).own_slice(rows) for rank in range(size)]
            assert [row for part in parts for row in range(part.start, part.stop)] == [*range(rows)]
            lengths = [part.stop - part.start for part in parts]
            assert max(lengths) - min(lengths) <= 1


# --- speed

LEVELS = (9, 16, 7, 15, 6, 5, 2, 42)  # of Adult's categories, besides 6 numbers
STEPS, ROUNDS = 8, 16


def adult_stepper(world: World) -> Stepper:
    """The estimator's defaults on a table of Adult's shape."""
    g = torch.Generator().manual_seed(0)
    cat = torch.stack([torch.randint(1, n + 1, (8192,), generator=g) for n in LEVELS], 1)
    rows = EncodedTable(torch.rand(8192, 6, generator=g), cat, None)
    bins = tuple(Bins.fit(column) for column in rows.num.double().numpy().T)
    estimator = VarTJEPA()
    with seeded_weights(0):
        model = estimator._build(TableShape(6, tuple(n + 1 for n in LEVELS), bins))
    settings = Training(epochs=100, batch_size=512)
    return make_stepper(estimator._loss(model), rows, settings, 0, world)


def race(world: World, told: Connection | None) -> None:
    """Whenever told to, take some steps and say how long they took; the main process is told."""
    keep_freed_memory()
    with adult_stepper(world) as stepper:
        stepper.begin_epoch()
        sizes = stepper.sizes
        while world.broadcast_number(bool(told and told.recv())):
            stepper.begin_epoch()
            stepper.sizes = sizes  # every round costs the same
            start, busy = time.perf_counter(), time.process_time()
            for _ in range(STEPS):
                stepper.step()
            if told:
                told.send((time.perf_counter() - start, time.process_time() - busy))


def _racer(rank: int, size: int, store: str, told: Connection | None) -> None:
    torch.set_num_threads(1)
    if size == 1:
        race(ALONE, told)
    else:
        with connect(CPU, dist.FileStore(store, size), rank, size) as world:
            race(world, told)
    os._exit(0)


@pytest.mark.soak
def test_two_processes_are_faster(
    tmp_path: Path, record_soak: Callable[[str, dict[str, Any]], None]
) -> None:
    ends = [PROCESSES.Pipe(), PROCESSES.Pipe()]
    store = str(tmp_path / "store")
    racers = [
        PROCESSES.Process(target=_racer, args=(0, 1, store, ends[0][1])),
        PROCESSES.Process(target=_racer, args=(0, 2, store, ends[1][1])),
        PROCESSES.Process(target=_racer, args=(1, 2, store, None)),
    ]
    for racer in racers:
        racer.start()
    for _told, other in ends:
        other.close()  # a racer that dies is an end of file, not a wait without end
    rounds: list[list[tuple[float, float]]] = []
    for _ in range(ROUNDS):  # in turn: the machine may be shared
        rounds.append([])
        for told, _other in ends:
            told.send(True)
            rounds[-1].append(told.recv())
    for told, _other in ends:
        told.send(False)
    for racer in racers:
        racer.join(30)
    # a round's two turns see the same machine; the fastest turn of each is what a free one gives
    ratio = statistics.median(a[0] / b[0] for a, b in rounds[1:])
    one, two = (min(seconds for seconds, _ in each) for each in zip(*rounds[1:], strict=True))
    figures = {
        "rows per second, one process": round(STEPS * 512 / one),
        "rows per second, two processes": round(STEPS * 512 / two),
        "ratio": round(ratio, 2),
        "ratio of the fastest turns": round(one / two, 2),
        # of what a process computes itself: the ratio on free cores, but for waiting
        "ratio by processor time": round(statistics.median(a[1] / b[1] for a, b in rounds[1:]), 2),
        "load average": round(os.getloadavg()[0], 1),
    }
    record_soak("ddp_throughput", figures)
    assert ratio >= 1.6, figures
