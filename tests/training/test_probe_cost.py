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
from varjepa.training.losses import Loss


class Times(NamedTuple):
    processor: float
    clock: float

    @classmethod
    def now(cls) -> Times:
        return cls(time.process_time(), time.monotonic())

    def since(self, start: Times) -> Times:
        return Times(self.processor - start.processor, self.clock - start.clock)


@pytest.mark.soak
def test_the_online_probe_costs_little(
    record_soak: Callable[[str, dict[str, Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        adult = load_dataset("adult")
    except InputError as error:
        pytest.skip(str(error))
    train = adult.split(0).train
    validations: list[Times] = []
    score = FilteredProbe.score

    def timed(self: FilteredProbe, objective: Loss) -> float:
        start = Times.now()
        found = score(self, objective)
        validations.append(Times.now().since(start))
        return found

    monkeypatch.setattr(FilteredProbe, "score", timed)
    # as many epochs as there are between two validations
    training = Training(epochs=Training().validate_every)
    model = VarTJEPA(training=training, random_state=0, device="cpu")
    start = Times.now()
    model.fit(adult.table.take(train), adult.label[train])
    whole = Times.now().since(start)
    share = sum(each.processor for each in validations) / whole.processor
    record_soak(
        "probe-cost",
        {
            "what": "Adult, defaults, labels: epochs between two validations, and the validation "
            "with its embeddings",
            "validations": len(validations),
            "processor seconds": round(whole.processor, 1),
            "processor seconds in the probe": round(sum(x.processor for x in validations), 2),
            "share in the probe": round(share, 4),
            "seconds by the clock": round(whole.clock, 1),
            "seconds by the clock in the probe": round(sum(x.clock for x in validations), 2),
        },
    )
    assert validations
    assert share < 0.05
    assert sum(each.clock for each in validations) < 0.05 * whole.clock
