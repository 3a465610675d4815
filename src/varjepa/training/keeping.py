"""When a training is checkpointed, of what, and how it goes on from one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from varjepa.environment import compare_arithmetic, describe_arithmetic
from varjepa.errors import InputError
from varjepa.training.checkpoint import Checkpoint, Checkpoints
from varjepa.training.distributed import Team
from varjepa.training.state import TrainingState
from varjepa.training.steps import Stepper
from varjepa.training.stopping import HeldSignals

SAVE = 1
"""What a process says that wants a checkpoint; one that holds a signal says its number, 2 or 15."""


class Keeper:
    """Keeps a training on disk between its steps; of several processes, the leader does."""

    def __init__(
        self, checkpoints: Checkpoints, stepper: Stepper, state: TrainingState, team: Team
    ) -> None:
        self.checkpoints, self.stepper, self.state, self.team = checkpoints, stepper, state, team
        self.signals = HeldSignals(self._write)

    def save(self, finished: bool = False) -> None:
        """Write a checkpoint of this very step; no process goes on, or ends, before it is there."""
        if self.team.leads:
            self._write(finished)
        self.team.wait_for_leader()

    def _write(self, finished: bool = False) -> None:
        tensors = {f"best.{name}": weight for name, weight in self.state.best.items()}
        facts = {
            "environment": describe_arithmetic(),
            "step": self.stepper.done,
            "steps": int(self.stepper.total),
            "finished": finished,
            **self.state.facts(),
        }
        self.checkpoints.save(facts, {**tensors, **self.stepper.tensors()})

    def restore(self, past: Checkpoint) -> None:
        """Go back to where a checkpoint was taken."""
        prefix = "best."
        best = {
            name.removeprefix(prefix): tensor
            for name, tensor in past.tensors.items()
            if name.startswith(prefix)
        }
        try:
            self.state.restore(past.facts, best)
            self.stepper.restore(past.tensors)
            difference = compare_arithmetic(past.facts["environment"])
        except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"the checkpoints in {self.checkpoints.folder} are not of this training: {error}"
            ) from error
        if difference:
            warnings.warn(
                f"the checkpoint was written by {difference}: the end of the training may differ "
                "in its last digits from one without an interruption",
                stacklevel=2,
            )

    def after_step(self) -> None:
        """Save where it is time to, or a signal waits for it: on all processes or on none."""
        due = self.team.leads and self.checkpoints.is_due()
        wish = self.team.highest(self.signals.waiting or (SAVE if due else 0))
        if wish > SAVE:
            self.signals.waiting = None  # a second one waits until this is written
            self.save()
            self.signals.send(wish)
        elif wish:
            self.save()

    def looking(self) -> AbstractContextManager[None]:
        """A look at the validation rows changes nothing that is kept: it may end at any moment.

        Where there are others, they hear of it when they look for the leader.
        """
        return self.signals.interruptible() if self.team.leads else nullcontext()


class NoKeeper:
    """For a training that nobody keeps."""

    def save(self, finished: bool = False) -> None:
        pass

    def after_step(self) -> None:
        pass

    def looking(self) -> AbstractContextManager[None]:
        return nullcontext()


@contextmanager
def keeping(
    checkpoints: Checkpoints | None,
    past: Checkpoint | None,
    stepper: Stepper,
    state: TrainingState,
    team: Team,
) -> Iterator[Keeper | NoKeeper]:
    """Keep a training, after going back to ``past``; signals are held meanwhile."""
    if checkpoints is None:
        yield NoKeeper()
        return
    keeper = Keeper(checkpoints, stepper, state, team)
    if past is not None:
        keeper.restore(past)
    with keeper.signals:
        yield keeper
