"""Claims about trainings that the studies keep.

1. A training that is stopped goes on from its checkpoint and ends with the weights of one that was
   not, for either model; its seconds are those of all its parts.
2. No checkpoint is left when the model is saved.
3. One of another training is refused in a sentence that says what is different.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.experiments.tiny import TINY
from varjepa.datasets.dataset import Dataset
from varjepa.datasets.loading import load_dataset
from varjepa.errors import InputError
from varjepa.experiments import embeddings
from varjepa.experiments.embeddings import obtain_model
from varjepa.experiments.pretraining import Pretraining, pretraining
from varjepa.experiments.representations import first_rows
from varjepa.experiments.results import plain
from varjepa.experiments.tabular_settings import Model

# trained for a few epochs
pytestmark = pytest.mark.filterwarnings("ignore:the latents have collapsed")


@pytest.fixture
def data() -> Dataset:
    return first_rows(load_dataset("sim"), TINY.rows)


def spec_of(model: Model) -> Pretraining:
    spec = pretraining("sim", model, "paper", TINY)
    return replace(spec, epochs=4, check_every=1, patience=4)


def train(folder: Path, data: Dataset, spec: Pretraining, say: Any = lambda line: None) -> Any:
    stamp = {"settings": plain(spec), "dataset": data.name}
    return obtain_model(folder / "models" / "it", spec, stamp, data, "cpu", say)


def stop_at(epoch: int) -> Any:
    """Ctrl-C after an epoch."""

    def say(line: str) -> None:
        if f"epoch {epoch} " in line:
            os.kill(os.getpid(), signal.SIGINT)

    return say


@pytest.mark.parametrize("model", ["t_jepa", "var_t_jepa"])
def test_a_stopped_training_goes_on(
    model: Model, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(model)
    whole, _ = train(tmp_path / "whole", data, spec)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, data, spec, stop_at(2))
    assert list((tmp_path / "checkpoints" / "it").glob("*.safetensors"))

    monkeypatch.setattr(embeddings, "fit_on_all_rows", timed := Timed(embeddings.fit_on_all_rows))
    resumed, training = train(tmp_path, data, spec)
    assert timed.before > 0
    assert training["seconds"] >= round(timed.before, 1)
    assert training["epochs"] == 4
    weights = resumed.model_.state_dict()
    assert all(torch.equal(weights[k], v) for k, v in whole.model_.state_dict().items())
    assert not (tmp_path / "checkpoints" / "it").exists()


class Timed:
    """The function, and what it said of earlier runs."""

    def __init__(self, function: Any) -> None:
        self.function, self.before = function, 0.0

    def __call__(self, *arguments: Any) -> float:
        self.before = self.function(*arguments)
        return self.before


def test_a_checkpoint_of_another_training_is_refused(data: Dataset, tmp_path: Path) -> None:
    spec = spec_of("var_t_jepa")
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, data, spec, stop_at(1))
    with pytest.raises(InputError, match=r"of another training: anneal_epochs was \[[^;]*$"):
        train(tmp_path, data, replace(spec, anneal_epochs=(3, 3, 3)))
