"""One thread per test process: the suite runs two processes, and threads would fight over cores."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sklearn.linear_model  # noqa: F401 - loads every library whose threads are limited below
import torch
from hypothesis import settings
from threadpoolctl import threadpool_limits

from varjepa.environment import describe_environment
from varjepa.estimators.base import TableEstimator
from varjepa.files import write_json
from varjepa.settings import Architecture

torch.set_num_threads(1)
threadpool_limits(1)

# a shell that starts the suite in the background lets it ignore Ctrl-C, and all it starts as well
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")


@pytest.fixture
def short_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fit takes two steps; default networks are narrow: for snippets and examples."""
    settings_of = TableEstimator.settings

    def short(self: TableEstimator, name: str) -> Any:
        value = settings_of(self, name)
        return replace(value, epochs=1, max_steps=2) if name == "training" else value

    narrow = Architecture(d=16, predictor_width=16)
    monkeypatch.setattr(Architecture, "for_rows", staticmethod(lambda rows: narrow))
    monkeypatch.setattr(TableEstimator, "settings", short)


@pytest.fixture
def record_soak() -> Callable[[str, dict[str, Any]], None]:
    """Keep a long test's figures, with the machine, where docs/reliability.md reads them."""
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def record(name: str, figures: dict[str, Any]) -> None:
        folder = Path(__file__).parents[1] / "benchmarks" / "results" / "soak"
        folder.mkdir(exist_ok=True)
        write_json(
            folder / f"{name}.json",
            {"figures": figures, "environment": describe_environment(device)},
        )

    return record
