"""Single cells that a model is asked for, each given the other columns of its row.

To leave out every column of every row takes a pass per row and column, and few of these answers are
wanted the second time. So the unit of work is a row with the group of columns that it is asked for,
and a block holds those of several groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from varjepa.estimators import VarTJEPA
from varjepa.models.cells import MAX_PASSES
from varjepa.models.masking import FeatureMasks
from varjepa.models.var_t_jepa import VarTJepa
from varjepa.tables.codec import EncodedTable

Ask = Callable[[VarTJepa, EncodedTable, FeatureMasks], Tensor]

MOST_NUMBERS = 1 << 24
"""Cells and answers that are in memory at a time."""


def groups_of(columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The group of every feature, given its column: a wide table's columns share groups."""
    return columns % MAX_PASSES


def ask_cells(
    model: VarTJEPA,
    rows: EncodedTable,
    asked: NDArray[np.bool_],
    groups: NDArray[np.int64],
    features: NDArray[np.int64],
    ask: Ask,
) -> NDArray[np.float32]:
    """What ``ask`` says of the cells that are asked for; 0 for the others.

    ``asked (N, G)`` says which groups of features, ``groups (D,)`` the group of every feature,
    ``features (W,)`` the feature that each number of the answer is about.

    Shape: → ``(N, W)``.
    """
    found = np.zeros((len(rows), len(features)), dtype=np.float32)
    sizes = np.bincount(groups, minlength=asked.shape[1])
    for size in np.unique(sizes):  # masks of one block have one shape
        same = np.flatnonzero(sizes == size)
        about = [np.flatnonzero(groups[features] == group) for group in same]
        questions = _Questions.of(groups, same, about, ask)
        step = max(512, MOST_NUMBERS // (len(groups) + questions.wanted.shape[1]))
        pairs = np.argwhere(asked[:, same])  # row and place of its group
        for begin in range(0, len(pairs), step):
            row, place = pairs[begin : begin + step].T
            answers = model.map_rows(_AskedRows.of(rows, row, place), questions)
            for k, here in enumerate(about):
                mine = place == k
                found[np.ix_(row[mine], here)] = answers[mine, : len(here)]
    return found


@dataclass(frozen=True, slots=True)
class _AskedRows(EncodedTable):
    """Rows with the group of features that each is asked for."""

    group: Tensor  # (N,)

    @classmethod
    def of(
        cls, rows: EncodedTable, index: NDArray[np.int64], group: NDArray[np.int64]
    ) -> _AskedRows:
        some = rows.take(torch.as_tensor(index))
        return cls(some.num, some.cat, some.observed, torch.as_tensor(group))

    def take(self, index: Any) -> _AskedRows:
        observed = None if self.observed is None else self.observed[index]
        return _AskedRows(self.num[index], self.cat[index], observed, self.group[index])

    def to(self, device: torch.device | str, **options: Any) -> _AskedRows:
        rows = EncodedTable(self.num, self.cat, self.observed).to(device, **options)
        return _AskedRows(rows.num, rows.cat, rows.observed, self.group.to(device))


@dataclass(frozen=True, slots=True)
class _Questions:
    """Asks rows for their group given all features outside it."""

    context: Tensor  # (G, D - size)
    target: Tensor  # (G, size)
    wanted: Tensor  # (G, most) numbers of the answer that are about the group, filled up with 0
    ask: Ask

    @classmethod
    def of(
        cls,
        groups: NDArray[np.int64],
        same: NDArray[np.int64],
        about: list[NDArray[np.int64]],
        ask: Ask,
    ) -> _Questions:
        context = np.stack([np.flatnonzero(groups != group) for group in same])
        target = np.stack([np.flatnonzero(groups == group) for group in same])
        wanted = np.zeros((len(same), max(map(len, about))), dtype=np.int64)
        for row, here in zip(wanted, about, strict=True):
            row[: len(here)] = here
        as_tensor = torch.as_tensor
        return cls(as_tensor(context), as_tensor(target), as_tensor(wanted), ask)

    def __call__(self, model: Any, rows: EncodedTable, _: Tensor) -> Tensor:
        assert isinstance(rows, _AskedRows)
        context, target, wanted = (
            index.to(rows.num.device)[rows.group]
            for index in (self.context, self.target, self.wanted)
        )
        seen = None if rows.observed is None else rows.observed.gather(1, context)
        masks = FeatureMasks(context, seen, target.unsqueeze(1), None)
        return self.ask(model, rows, masks).gather(1, wanted)
