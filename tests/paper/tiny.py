"""Experiments on a few hundred rows of SIM with one epoch: everything runs, nothing is learned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paper import representations
from paper.datasets.loading import Dataset, load_dataset
from paper.settings import Scale

TINY = Scale(rows=160, epochs=1, depth=1, predictor_epochs=1)


def sim_under_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real datasets are not there on every machine: any name loads SIM's rows."""

    def load(name: str) -> Dataset:
        return replace(load_dataset("sim"), name=name)

    monkeypatch.setattr(representations, "load_dataset", load)
