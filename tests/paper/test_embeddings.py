"""Claims about trainings that the studies keep.

1. A training that is stopped goes on from its checkpoint and ends with the weights of one that was
   not, for either model; its seconds are those of all its parts.
2. No checkpoint is left when the model is saved; those of a run that was killed before it could
   remove them, or save, cost nothing and go at the next.
3. One of another training, or of another kind of device, is refused in a sentence that says what
   is different and what to do.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from paper import protocol
from paper.datasets.loading import Dataset, load_dataset
from paper.protocol import obtain_model
from paper.representations import first_rows
from paper.settings import Model, Pretraining, pretraining
from tests.paper.tiny import TINY
from varjepa.errors import InputError
from varjepa.estimators import VarTJEPA, fitting
from varjepa.estimators.resuming import identity_of
from varjepa.training.step import Stepper

# trained for a few epochs
pytestmark = pytest.mark.filterwarnings("ignore:the latents have collapsed")


@pytest.fixture
def data() -> Dataset:
    return first_rows(load_dataset("sim"), TINY.rows)


def spec_of(model: Model) -> Pretraining:
    spec = pretraining("sim", model, "paper", TINY)
    return replace(spec, epochs=4, check_every=1, patience=4)


def train(folder: Path, data: Dataset, spec: Pretraining, say: Any = lambda line: None) -> Any:
    return obtain_model(folder, "it", spec, data, "cpu", say)


def stop_at(epoch: int) -> Any:
    """Ctrl-C after an epoch."""

    def say(line: str) -> None:
        if f"epoch {epoch} " in line:
            os.kill(os.getpid(), signal.SIGINT)

    return say


@pytest.mark.parametrize("model", ["t_jepa", "var_t_jepa"])
def test_a_stopped_training_goes_on(model: Model, data: Dataset, tmp_path: Path) -> None:
    spec = spec_of(model)
    whole, _ = train(tmp_path / "whole", data, spec)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, data, spec, stop_at(2))
    assert list((tmp_path / "checkpoints" / "it").glob("*.safetensors"))

    resumed, training = train(tmp_path, data, spec)
    assert training["seconds"] >= training["seconds_before"] >= 0
    assert training["epochs"] == 4
    weights = resumed.model_.state_dict()
    assert all(torch.equal(weights[k], v) for k, v in whole.model_.state_dict().items())
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("name", ["save", "write_json"])
def test_a_run_killed_after_the_last_epoch(
    name: str, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the model is saved, or before that is written down: nothing is trained again."""
    spec, owner = spec_of("var_t_jepa"), VarTJEPA if name == "save" else protocol

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, name, killed)
        train(tmp_path, data, spec)
    monkeypatch.setattr(Stepper, "step", killed)
    monkeypatch.setattr(protocol, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    _, training = train(tmp_path, data, spec)
    assert training["epochs"] == 4
    assert training["seconds_before"] > 0  # this run took no time
    assert not (tmp_path / "checkpoints").exists()


def test_checkpoints_of_a_saved_model_go(data: Dataset, tmp_path: Path) -> None:
    spec = spec_of("var_t_jepa")
    train(tmp_path, data, spec)
    left = tmp_path / "checkpoints" / "it"
    left.mkdir(parents=True)
    for end in (".json", ".safetensors", ".manifest.json"):
        (left / f"7{end}").write_bytes(b"")
    train(tmp_path, data, spec)
    assert not left.exists()


def test_a_checkpoint_of_another_training_is_refused(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of("var_t_jepa")
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, data, spec, stop_at(1))
    says = r"of another training: anneal_share was \[[^;]*; remove .*it to start over$"
    with pytest.raises(InputError, match=says):
        train(tmp_path, data, replace(spec, anneal_epochs=(3, 3, 3)))

    def elsewhere(*arguments: Any) -> dict[str, Any]:
        found = identity_of(*arguments)
        return found | {"settings": found["settings"] | {"device": "cuda"}}

    monkeypatch.setattr(fitting, "identity_of", elsewhere)
    with pytest.raises(InputError, match=r"device was 'cpu' and is 'cuda'; remove"):
        train(tmp_path, data, spec)
