"""Where a training stands between two steps, beside what its stepper knows."""

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
    """Finished epochs, and the best look among them."""

    best: dict[str, Tensor]
    """weights of the look to keep"""
    best_epoch: int = 0
    """0: none yet"""
    best_score: float = -math.inf
    """the highest yet; that of ``best_epoch``, or one it is not worse than but for noise"""
    checks_without_gain: int = 0
    """since then"""
    history: list[Record] = field(default_factory=list)
    """a record per finished epoch"""
    clock: float = 0.0
    """when the current epoch began, without the time it lay still in a checkpoint"""

    @property
    def epoch(self) -> int:
        """The epoch to finish next: 1, 2, …"""
        return len(self.history) + 1

    def is_over(self, epochs: int, patience: int) -> bool:
        """Whether there is nothing left to train."""
        return self.epoch > epochs or self.checks_without_gain >= patience

    def judge(self, score: float, model: nn.Module, noise: float = 0.0) -> None:
        """Keep the weights if no earlier look was better by ``noise`` or more."""
        if score > self.best_score - noise:
            self.best_epoch, self.best = self.epoch, snapshot(model)
            self.best_score = max(score, self.best_score)
            self.checks_without_gain = 0
        else:
            self.checks_without_gain += 1

    def facts(self) -> dict[str, Any]:
        """All but the weights, for JSON."""
        return {
            "best_epoch": self.best_epoch,
            "best_score": self.best_score if self.best_epoch else None,
            "looks_without_gain": self.checks_without_gain,
            "history": self.history,
            "seconds": time.perf_counter() - self.clock,
        }

    def restore(self, facts: Mapping[str, Any], best: Mapping[str, Tensor]) -> None:
        """The state that ``facts`` and these weights were taken from."""
        for name, weight in self.best.items():
            if best[name].shape != weight.shape:
                raise ValueError(f"{name} has another shape")
            weight.copy_(best[name])
        self.best_epoch = facts["best_epoch"]
        self.best_score = facts["best_score"] if self.best_epoch else -math.inf
        self.checks_without_gain = facts["looks_without_gain"]
        self.history = list(facts["history"])
        self.clock = time.perf_counter() - facts["seconds"]


def seconds_before(facts: Mapping[str, Any]) -> float:
    """What a training had taken when these facts were written down."""
    unfinished = 0.0 if facts["finished"] else facts["seconds"]  # of the epoch it was in
    return float(unfinished + sum(record["seconds"] for record in facts["history"]))


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the weights."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
