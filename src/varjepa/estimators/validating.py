"""The rows that training does not see, and the question they are asked to pick a checkpoint."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_consistent_length, column_or_1d
from torch import Tensor

from varjepa.errors import InputError
from varjepa.masking import MaskSettings
from varjepa.models.rows import Rows, take_rows
from varjepa.randomness import generator_for
from varjepa.training.distributed import ALONE, Team
from varjepa.training.linear_probe import LinearProbeSettings
from varjepa.training.selection import FilteredProbe, HeldOutObjective, Selection

ONLINE_PROBE = LinearProbeSettings()
"""The linear probe that picks the checkpoint where labels are given."""

STANDARD_ERRORS = 1.0
"""A linear probe is as good early on as at the end, and the accuracy of some thousand rows tells
the two apart by chance. Predictions of values take the whole training, so the latest look wins that
is not worse than the best by more than its standard error."""


def hold_out(rows: Rows, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Rows to train on and rows to select with; the same rows where there are too few."""
    order = torch.randperm(len(rows), generator=generator_for(seed, "split")).to(rows.num.device)
    held_out = int(len(rows) * share)
    if held_out == 0:
        return order, order
    return order[held_out:], order[:held_out]


def make_selection(
    rows: Rows,
    training: Tensor,
    validation: Tensor,
    y: ArrayLike | None,
    masks: MaskSettings,
    discard: float,
    seed: int,
    team: Team = ALONE,
) -> Selection:
    """A probe where y holds classes, else the objective itself.

    Rows whose label is missing (None, NaN) are trained on and take no part in the probe.
    ``discard`` is the share of the most uncertain validation rows that the probe leaves out.
    """
    if y is not None:
        labels = column_or_1d(y)
        check_consistent_length(rows.num, labels)
        known = np.array([label is not None and label == label for label in labels], dtype=bool)
        if not known.any():
            raise InputError("y has no label at all; fit without y")
        if type_of_target(labels[known].tolist()) in ("binary", "multiclass"):
            classes, codes = np.unique(labels[known], return_inverse=True)
            numbers = torch.full((len(rows),), -1)
            numbers[torch.as_tensor(known)] = torch.as_tensor(codes)
            numbers = numbers.to(rows.num.device)
            learn, judge = (part[numbers[part] >= 0] for part in (training, validation))
            if not len(learn) or not len(judge):
                raise InputError(
                    f"{known.sum()} labels are too few to pick a checkpoint by; fit without y"
                )
            return FilteredProbe(
                take_rows(rows, learn),
                numbers[learn],
                take_rows(rows, judge),
                numbers[judge],
                len(classes),
                ONLINE_PROBE,
                seed,
                discard,
                STANDARD_ERRORS,
                team,
            )
    return HeldOutObjective(take_rows(rows, validation), masks, seed, team=team)
