"""Kill `varjepa fit --resume` again and again; run as a script, for one import of torch.

Every attempt is a fork of this process that runs the whole command. Half of the attempts end by a
SIGKILL from outside at a random time; the other half kill themselves at a random operation on a
file, or in the middle of writing one. After each, every checkpoint with a manifest must load. The
folder then goes to the next attempt, until one comes through; then a new folder begins.

Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from varjepa.cli import main
from varjepa.errors import InputError
from varjepa.training import checkpoints
from varjepa.training.checkpoints import Checkpoints, complete_checkpoints

OPERATIONS = ("write_bytes", "replace", "unlink", "chmod", "rename")


def write_table(path: Path, rows: int) -> None:
    """Numbers and two categories."""
    rng = np.random.default_rng(0)
    lines = ["size,zip,colour"]
    for size, code, colour in zip(
        rng.normal(size=rows), rng.integers(1, 4, rows), rng.integers(0, 2, rows), strict=True
    ):
        lines.append(f"{size:.6f},{code},{('red', 'green')[colour]}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def end_of(model: Path) -> dict[str, str]:
    """Fingerprints of a training's end: weights, optimiser and generators; and its history."""
    folder = model / "checkpoints"
    number = complete_checkpoints(folder)[-1]
    facts = json.loads((folder / f"{number}.json").read_text(encoding="utf-8"))
    assert facts["finished"]
    history = [{k: v for k, v in r.items() if k != "seconds"} for r in facts["history"]]
    lines = (model / "history.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == facts["history"]
    return {
        "weights": sha256((model / "model.safetensors").read_bytes()),
        "weights, optimiser, generators": sha256((folder / f"{number}.safetensors").read_bytes()),
        "history": sha256(json.dumps(history).encode()),
    }


def run_command(arguments: list[str], model: Path, suicide: int | None, seed: int) -> None:
    """In a fork: the command, with its last checkpoint looked at before it goes."""
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    remove = checkpoints.remove_checkpoints

    def look_and_remove(folder: Path) -> None:
        if complete_checkpoints(folder):  # else an earlier attempt has looked
            (model.parent / f"{model.name}.end.json").write_text(json.dumps(end_of(model)))
        remove(folder)

    checkpoints.remove_checkpoints = look_and_remove
    if suicide is not None:
        die_at(suicide, seed)
    try:
        main(arguments)
    except SystemExit as stop:
        os._exit(int(stop.code or 0))


def die_at(operation: int, seed: int) -> None:
    """SIGKILL this process at its so many-th operation on a file."""
    left = [operation]

    def hooked(name: str, original: Any) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                if name == "write_bytes":  # a part of the file
                    path, content = arguments
                    original(path, content[: random.Random(seed).randrange(len(content) + 1)])
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **more)

        return call

    for name in OPERATIONS:
        setattr(Path, name, hooked(name, getattr(Path, name)))
    os.fsync = hooked("fsync", os.fsync)


def unloadable(model: Path) -> int:
    """Checkpoints with a manifest that cannot be read."""
    found = 0
    folder = model / "checkpoints"
    for number in complete_checkpoints(folder):
        try:
            Checkpoints(folder, 0.0)._read(number)
        except InputError:
            found += 1
    return found


def kill_again_and_again(folder: Path, kills: int, epochs: int, rows: int, seed: int) -> Any:
    """The figures of a run with so many kills."""
    chance = random.Random(seed)
    table = folder / "table.csv"
    write_table(table, rows)

    def attempt(model: Path, *, resume: bool, suicide: int | None, delay: float | None) -> int:
        options = ["--resume", "--checkpoint-every", "0"] if resume else []
        arguments = ["fit", str(table), "--out", str(model), "--epochs", str(epochs), *options]
        noise = chance.randrange(2**31)
        child = os.fork()
        if child == 0:
            run_command(arguments, model, suicide, noise)
        if delay is not None:
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)  # a child that is done already waits to be asked
        return os.waitpid(child, 0)[1]

    start = time.monotonic()
    assert attempt(folder / "whole", resume=False, suicide=None, delay=None) == 0
    seconds = time.monotonic() - start
    expected = json.loads((folder / "whole.end.json").read_text(encoding="utf-8"))

    count: Counter[str] = Counter()
    while count["kills"] < kills:
        count["trainings"] += 1
        model = folder / f"model-{count['trainings']}"
        while True:
            inside = count["kills"] % 2 == 0
            alive = count["kills"] >= kills
            status = attempt(
                model,
                resume=True,
                suicide=chance.randint(1, 90) if inside and not alive else None,
                delay=chance.uniform(0.1, seconds) if not inside and not alive else None,
            )
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                count["kills"] += 1
                count["inside a save" if inside else "at a random time"] += 1
                count["unloadable"] += unloadable(model)
                continue
            if status != 0:
                count["failed"] += 1
                break
            end = json.loads((folder / f"{model.name}.end.json").read_text(encoding="utf-8"))
            count["identical"] += end == expected
            left = [p.name for p in model.iterdir() if p.name.startswith(".") or p.is_dir()]
            count["left behind"] += len(left)
            break
        shutil.rmtree(model, ignore_errors=True)
    names = ("kills", "inside a save", "at a random time", "unloadable", "failed", "trainings")
    return {**{name: count[name] for name in (*names, "identical", "left behind")}, **expected}


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for option, default in (("kills", 4), ("epochs", 3), ("rows", 200), ("seed", 0)):
        parser.add_argument(f"--{option}", type=int, default=default)
    found = kill_again_and_again(**vars(parser.parse_args()))
    sys.stdout.write(json.dumps(found) + "\n")
