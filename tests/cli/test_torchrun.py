"""Claims: `torchrun --nproc-per-node 2 -m varjepa fit …`, for real.

1. A killed process ends the job with a non-zero exit code within 60 s, with one sentence of ours
   and whole checkpoints.
2. --resume goes on from there; SIGTERM to torchrun stops all processes with a checkpoint.
3. --resume with one process goes on from that and ends with the losses of an uninterrupted run of
   one process, to 1e-3, in a model folder that loads.
4. A process that stands still does not keep the others for ever. A job that ends well says so once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_shell import run
from tests.killing import write_table
from varjepa.estimators import VarTJEPA
from varjepa.training.checkpoints import Checkpoints, complete_checkpoints

pytestmark = [
    pytest.mark.filterwarnings("default::UserWarning"),  # a few epochs do collapse
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
]

LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "varjepa"]
EPOCHS = 5  # 30 steps
AT_EVERY_STEP = ("--checkpoint-every", "0")


@contextlib.contextmanager
def torchrun(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*LAUNCH, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:  # it ends the others
                process.terminate()
                process.communicate()


def process_of_rank(launcher: subprocess.Popen[str], rank: int) -> int:
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    for child in children:
        variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        if f"RANK={rank}".encode() in variables:
            return int(child)
    raise AssertionError(f"no process of rank {rank} among {children}")


def steps_of(folder: Path) -> int:
    """Steps in the newest checkpoint."""
    past = Checkpoints(folder, 0.0).latest() if complete_checkpoints(folder) else None
    return 0 if past is None else int(past.facts["step"])


def wait_for(step: int, folder: Path, launcher: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while launcher.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(Exception):  # the oldest goes while it is read
            if steps_of(folder) >= step:
                return
        time.sleep(0.05)
    raise AssertionError(f"no checkpoint of step {step}: {launcher.communicate()}")


def ours(error: str) -> list[str]:
    """What the command itself said, without torchrun's long report and the collapse warning."""
    said = [line for line in error.splitlines() if line.startswith("varjepa: ")]
    return [line for line in said if "warning" not in line]


def losses(model: Path) -> list[float]:
    history = json.loads((model / "config.json").read_text(encoding="utf-8"))["history"]
    return [record["loss"] for record in history]


def test_a_job_is_killed_resumed_stopped_and_finished(tmp_path: Path) -> None:
    table, out, whole = tmp_path / "table.csv", tmp_path / "model", tmp_path / "whole"
    write_table(table, 200)
    kept = out / "checkpoints"
    command = ["fit", table, "--out", out, "--epochs", EPOCHS]

    with torchrun(*command, *AT_EVERY_STEP) as job:
        wait_for(3, kept, job)
        os.kill(process_of_rank(job, 1), signal.SIGKILL)
        start = time.monotonic()
        _, error = job.communicate(timeout=60)
        assert time.monotonic() - start < 60
        assert job.returncode != 0
    assert len(ours(error)) == 1, error
    assert "--resume continues from" in ours(error)[0]
    assert not (out / "manifest.json").exists()
    killed_at = steps_of(kept)

    with torchrun(*command, *AT_EVERY_STEP, "--resume") as job:
        wait_for(killed_at + 3, kept, job)
        before = complete_checkpoints(kept)[-1]
        job.send_signal(signal.SIGTERM)
        _, error = job.communicate(timeout=30)
        assert job.returncode != 0
    assert [line for line in ours(error) if "--resume continues from" in line], error
    assert len(ours(error)) == 1, error
    assert complete_checkpoints(kept)[-1] > before
    assert not (out / "manifest.json").exists()

    assert run("fit", table, "--out", whole, "--epochs", EPOCHS) == 0
    assert run(*command, "--resume") == 0
    assert losses(out) == pytest.approx(losses(whole), rel=1e-3)
    lines = (out / "history.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [*range(1, EPOCHS + 1)]
    assert not kept.exists()
    VarTJEPA.load(out)


@pytest.mark.soak
def test_a_process_that_stands_still(
    tmp_path: Path, record_soak: Callable[[str, dict[str, Any]], None]
) -> None:
    table = tmp_path / "table.csv"
    write_table(table, 200)
    figures = {}
    for name, number in (("killed", signal.SIGKILL), ("stands still", signal.SIGSTOP)):
        out = tmp_path / name
        with torchrun("fit", table, "--out", out, "--epochs", 500, *AT_EVERY_STEP) as job:
            wait_for(3, out / "checkpoints", job)
            os.kill(process_of_rank(job, 1), number)
            start = time.monotonic()
            job.communicate(timeout=120)
            assert job.returncode != 0
            figures[f"seconds to the end, a process {name}"] = round(time.monotonic() - start, 1)
    with torchrun("fit", table, "--out", tmp_path / "well", "--epochs", 2) as job:
        output, error = job.communicate(timeout=120)
        assert job.returncode == 0
        assert (output.count("model in"), len(ours(error))) == (1, 0)
    record_soak("ddp_lost_process", figures)
    assert figures["seconds to the end, a process killed"] < 60
