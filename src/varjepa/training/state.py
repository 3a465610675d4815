"""Finished epochs and the best validation: a training's state besides that of its stepper."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

Record = dict[str, Any]
"""One epoch of the history; JSON-able."""


@dataclass(slots=True)
class TrainingState:
    """Finished epochs, and the best validation among them."""

    best: dict[str, Tensor]
    """weights of the best validation"""
    best_epoch: int = 0
    """0: none yet"""
    best_score: float = -math.inf
    """the highest so far: that of ``best_epoch``, or one that ``best_epoch`` equals within noise"""
    validations_without_gain: int = 0
    """since ``best_epoch``"""
    history: list[Record] = field(default_factory=list)
    """a record per finished epoch"""
    clock: float = 0.0
    """when the current epoch began; time between checkpoint and resume does not count"""

    @property
    def epoch(self) -> int:
        """The current epoch: 1, 2, …"""
        return len(self.history) + 1

    def is_over(self, epochs: int, patience: int) -> bool:
        """Whether training has ended: all epochs done, or patience exhausted."""
        return self.epoch > epochs or self.validations_without_gain >= patience

    def compare(self, score: float, model: nn.Module, noise: float = 0.0) -> None:
        """Store the weights unless an earlier validation was better by ``noise`` or more."""
        if score > self.best_score - noise:
            self.best_epoch, self.best = self.epoch, snapshot(model)
            self.best_score = max(score, self.best_score)
            self.validations_without_gain = 0
        else:
            self.validations_without_gain += 1

    def facts(self) -> dict[str, Any]:
        """All but the weights, for JSON."""
        return {
            "best_epoch": self.best_epoch,
            "best_score": self.best_score if self.best_epoch else None,
            "validations_without_gain": self.validations_without_gain,
            "history": self.history,
            "seconds": time.perf_counter() - self.clock,
        }

    def restore(self, facts: Mapping[str, Any], best: Mapping[str, Tensor]) -> None:
        """Set the state from ``facts`` and the best weights."""
        for name, weight in self.best.items():
            if best[name].shape != weight.shape:
                raise ValueError(f"{name} has another shape")
            weight.copy_(best[name])
        self.best_epoch = facts["best_epoch"]
        self.best_score = facts["best_score"] if self.best_epoch else -math.inf
        self.validations_without_gain = facts["validations_without_gain"]
        self.history = list(facts["history"])
        self.clock = time.perf_counter() - facts["seconds"]


def seconds_before(facts: Mapping[str, Any]) -> float:
    """Seconds that a training had taken when these facts were written."""
    unfinished = 0.0 if facts["finished"] else facts["seconds"]  # of the epoch it was in
    return float(unfinished + sum(record["seconds"] for record in facts["history"]))


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the weights."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
