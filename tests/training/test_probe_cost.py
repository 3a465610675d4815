"""Claim: validation with the online probe takes under 5 % of a default training.

Measured on one thread by processor time and by the clock; the latter wants a quiet machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from paper.datasets.loading import load_dataset
from varjepa.errors import InputError
from varjepa.estimators import VarTJEPA
from varjepa.settings import Training
from varjepa.training.loop import FilteredProbe
from varjepa.training.step import Stepper


class Times(NamedTuple):
    processor: float
    clock: float

    @classmethod
    def now(cls) -> Times:
        return cls(time.process_time(), time.monotonic())

    @classmethod
    def total(cls, times: list[Times]) -> Times:
        return cls(sum(one.processor for one in times), sum(one.clock for one in times))


def timed(method: Callable[..., Any], times: list[Times]) -> Callable[..., Any]:
    """The same method, which appends how long each call took."""

    def call(*arguments: Any) -> Any:
        start = Times.now()
        found = method(*arguments)
        end = Times.now()
        times.append(Times(end.processor - start.processor, end.clock - start.clock))
        return found

    return call


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:training may take another:UserWarning")
def test_the_online_probe_costs_little(
    record_soak: Callable[[str, dict[str, Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        adult = load_dataset("adult")
    except InputError as error:
        pytest.skip(str(error))
    train = adult.split(0).train
    steps: list[Times] = []
    validations: list[Times] = []
    monkeypatch.setattr(Stepper, "step", timed(Stepper.step, steps))
    monkeypatch.setattr(FilteredProbe, "score", timed(FilteredProbe.score, validations))
    # a few epochs are enough: each has as many steps, and ends with a validation
    model = VarTJEPA(training=Training(epochs=4), random_state=0, device="cpu")
    model.fit(adult.table.take(train), adult.label[train])
    assert len(validations) == 4
    probe, whole = Times.total(validations), Times.total(steps + validations)
    record_soak(
        "probe-cost",
        {
            "what": "Adult, defaults, labels, four epochs: their steps, and their validations with "
            "embeddings",
            "steps": len(steps),
            "validations": len(validations),
            "processor seconds": round(whole.processor, 1),
            "processor seconds in the probe": round(probe.processor, 2),
            "share in the probe": round(probe.processor / whole.processor, 4),
            "seconds by the clock": round(whole.clock, 1),
            "seconds by the clock in the probe": round(probe.clock, 2),
        },
    )
    assert probe.processor < 0.05 * whole.processor
    assert probe.clock < 0.05 * whole.clock
