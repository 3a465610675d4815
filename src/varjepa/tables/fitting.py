"""A codec's fit: every column's summary, from blocks of rows; a table in memory is one block.

Text is read first, to know what it is; then all columns once; then, of categories with more levels
than there is memory for, those found frequent are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from varjepa.errors import InputError
from varjepa.tables.dates import CALENDAR_PARTS
from varjepa.tables.features import (
    CategoricalFeature,
    Levels,
    NumericFeature,
    category_text,
    fit_part,
    read_parts,
)
from varjepa.tables.messages import TableWarnings, quoted
from varjepa.tables.scaling import Scaling, check_scaling
from varjepa.tables.schema import (
    Column,
    Kind,
    TableSchema,
    TableSource,
    complete_column,
    draft_columns,
)
from varjepa.tables.summaries import LevelSummary, MemoryLimits, NumberSummary, count_again


def fit_columns(
    source: TableSource,
    overrides: Mapping[str, Kind] | None,
    scaling: Scaling,
    max_levels: int | None,
    limits: MemoryLimits | None = None,
) -> tuple[TableSchema, tuple[NumericFeature, ...], tuple[CategoricalFeature, ...], TableWarnings]:
    """Fit every column; without ``limits`` all is exact, at the cost of the memory it takes."""
    check_scaling(scaling)
    if max_levels is not None and max_levels < 1:
        raise InputError(f"max_levels must be at least 1, not {max_levels}")
    drafts = draft_columns(source, overrides)
    numbers = {c.name: _Numbers(c) for c in drafts if c.kind != "categorical"}
    categories = [c for c in drafts if c.kind == "categorical"]
    level_limit = None if limits is None else limits.level_bytes // max(1, len(categories))
    levels = {c.name: LevelSummary(level_limit) for c in categories}
    sample = _Sample(source.rows, sum(n.width for n in numbers.values()), limits)
    for block in source.blocks(source.schema.names):
        kept = sample.of(block.num_rows)
        for name, found in numbers.items():
            found.add(block[name], kept)
        for column in categories:
            levels[column.name].add(category_text(block[column.name], column.type))
    complete = {name: found.column() for name, found in numbers.items()}
    schema = TableSchema(tuple(complete.get(c.name, c) for c in drafts))
    numeric = tuple(f for n in numbers.values() for f in n.features(source.rows, scaling))
    categorical = tuple(
        CategoricalFeature(
            c.name,
            Levels.of_counts(_exact_counts(c, levels[c.name], source), max_levels),
            levels[c.name].missing / source.rows,
        )
        for c in categories
    )
    _refuse_equal_names([n.feature.name for n in numeric] + [c.feature.name for c in categorical])
    infinite = {name: found.infinite for name, found in numbers.items()}
    return schema, numeric, categorical, TableWarnings(infinite=infinite)


class _Numbers:
    """A numeric or datetime column in the making."""

    def __init__(self, draft: Column) -> None:
        self.draft = draft
        self.width = 1 if draft.unit is None else 1 + len(CALENDAR_PARTS)
        self.parts: dict[str, NumberSummary] = {}
        self.valid = self.infinite = 0

    def add(self, data: pa.ChunkedArray, kept: NDArray[np.bool_] | None) -> None:
        found = read_parts(self.draft, data)
        self.valid += int(found.valid.sum())
        self.infinite += found.infinite
        for part, values in found.values.items():
            self.parts.setdefault(part, NumberSummary()).add(values, found.valid, kept)

    def column(self) -> Column:
        if self.draft.kind != "numeric":
            return self.draft
        return complete_column(self.draft, next(iter(self.parts.values())))

    def features(self, rows: int, scaling: Scaling) -> list[NumericFeature]:
        missing_share = 1.0 - self.valid / rows
        column = self.column()
        fitted = (fit_part(column, p, n, missing_share, scaling) for p, n in self.parts.items())
        return [feature for feature in fitted if feature is not None]


class _Sample:
    """Rows whose numbers are kept for quantiles: all that there is memory for, drawn evenly.

    The draw depends on the number of rows alone, not on how they come in blocks.
    """

    def __init__(self, rows: int, width: int, limits: MemoryLimits | None) -> None:
        self.share = 1.0 if limits is None else limits.numbers / max(1, rows * width)
        self.generator = np.random.default_rng(0)

    def of(self, rows: int) -> NDArray[np.bool_] | None:  # (N,)
        """Which of the next rows are kept; None: all."""
        return None if self.share >= 1.0 else self.generator.random(rows) < self.share


def _exact_counts(column: Column, found: LevelSummary, source: TableSource) -> pa.Table:
    counts = found.counts()
    if not found.lost:
        return counts
    texts = (
        category_text(block[column.name], column.type) for block in source.blocks([column.name])
    )
    return count_again(counts["text"], texts)


def _refuse_equal_names(names: list[str]) -> None:
    """A column called "when:month" next to a datetime column "when" would make two of a name."""
    for name, times in Counter(names).items():
        if times > 1:
            raise InputError(f"column {quoted(name)} has the name of a part of a datetime column")
