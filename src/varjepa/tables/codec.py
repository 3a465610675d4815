"""Tables to tensors and back: fit a codec, encode, decode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from varjepa.errors import InputError
from varjepa.tables.codec_json import FORMAT, VERSION, fitted_from_json
from varjepa.tables.columns import (
    MARGINAL_QUANTILES,
    VALUE,
    CategoricalFeature,
    Column,
    Feature,
    Kind,
    LeftOut,
    Levels,
    LevelSummary,
    Marginal,
    MemoryLimits,
    NumberSummary,
    NumericFeature,
    Reason,
    TableInMemory,
    TableSchema,
    TableSource,
    category_text,
    count_again,
    draft_columns,
    read_parts,
    text_reason,
)
from varjepa.tables.messages import TableWarnings, collect_warnings, listed, quoted, suggestion
from varjepa.tables.reading import read_table
from varjepa.tables.scaling import Bins, Scaler, Scaling, check_scaling
from varjepa.tables.values import (
    CALENDAR_PARTS,
    ELAPSED,
    PER_SECOND,
    Instants,
    instants_to_arrow,
    is_span,
    refuse_unsupported,
    value_type,
)

# --- tables as tensors


@dataclass(frozen=True, slots=True)
class EncodedTable:
    """Rows w ready for a tokenizer; numeric features come first, then categorical ones.

    A missing cell holds 0 in ``num`` or ``cat``; real levels are 1..L.
    """

    num: Tensor  # (N, F_num) float32; float64 where it must decode exactly
    cat: Tensor  # (N, F_cat) int64
    observed: Tensor | None  # (N, F_num + F_cat) bool
    """None: no cell is missing"""

    def __post_init__(self) -> None:
        seen = self.observed
        cells = len(self.num), self.num.shape[1] + self.cat.shape[1]
        if len(self.cat) != len(self.num) or (seen is not None and tuple(seen.shape) != cells):
            raise ValueError(
                f"num {tuple(self.num.shape)}, cat {tuple(self.cat.shape)} and observed "
                f"{None if seen is None else tuple(seen.shape)} do not describe the same cells"
            )

    def __len__(self) -> int:
        return len(self.num)

    def take(self, index: Tensor | slice | list[int]) -> EncodedTable:
        """Some of the rows: a slice, a list or tensor of positions, or a boolean mask."""
        observed = None if self.observed is None else self.observed[index]
        return EncodedTable(self.num[index], self.cat[index], observed)

    def split(self, batch: int) -> Iterator[EncodedTable]:
        """Consecutive slices of at most ``batch`` rows."""
        for start in range(0, len(self), batch):
            yield self.take(slice(start, start + batch))

    def to(self, device: torch.device | str, **options: Any) -> EncodedTable:
        """The same rows on another device; options are those of ``Tensor.to``."""
        observed = None if self.observed is None else self.observed.to(device, **options)
        return EncodedTable(
            self.num.to(device, **options), self.cat.to(device, **options), observed
        )

    @property
    def known(self) -> Tensor:
        """Which cells have a value, also where none is missing.  # (N, F_num + F_cat) bool"""
        if self.observed is not None:
            return self.observed
        shape = len(self), self.num.shape[1] + self.cat.shape[1]
        return torch.ones(shape, dtype=torch.bool, device=self.num.device)

    def drop_full_mask(self) -> EncodedTable:
        """The same rows, with ``observed`` None if no cell is missing."""
        if self.observed is None or not bool(self.observed.all()):
            return self
        return EncodedTable(self.num, self.cat, None)

    def write(self, start: int, part: EncodedTable) -> None:
        """Overwrite the rows from ``start`` on; a table without mask has no missing cell."""
        rows = slice(start, start + len(part))
        self.num.numpy()[rows] = part.num.numpy()
        self.cat.numpy()[rows] = part.cat.numpy()
        if self.observed is not None:
            self.observed.numpy()[rows] = True if part.observed is None else part.observed.numpy()

    @property
    def tensors(self) -> list[Tensor]:
        """The two or three tensors that there are."""
        return [self.num, self.cat, *([] if self.observed is None else [self.observed])]


# --- fit: text is read first, to know what it is; then all columns once


class _Numbers:
    """A numeric or datetime column in the making."""

    def __init__(self, draft: Column, rows: int) -> None:
        self.draft, self.rows = draft, rows
        self.width = 1 if draft.unit is None else 1 + len(CALENDAR_PARTS)
        kind = value_type(draft.type)
        is_float = pa.types.is_floating(kind)
        self.floats = np.dtype(kind.to_pandas_dtype()) if is_float else None
        self.parts: dict[str, NumberSummary] = {}
        self.valid = self.infinite = 0

    def add(self, data: pa.ChunkedArray, kept: NDArray[np.bool_] | None) -> None:
        parts = read_parts(self.draft, data)
        self.valid += int(parts.valid.sum())
        self.infinite += parts.infinite
        for part, values in parts.values.items():
            self.parts.setdefault(part, NumberSummary(self.floats)).add(values, parts.valid, kept)

    @property
    def numbers(self) -> NumberSummary:
        """Of a date its elapsed time."""
        return next(iter(self.parts.values()))

    @property
    def missing_share(self) -> float:
        return 1.0 - self.valid / self.rows

    @property
    def column(self) -> Column:
        if self.draft.kind != "numeric":
            return self.draft
        is_span_of_time = is_span(value_type(self.draft.type))
        return replace(self.draft, is_integer=self.numbers.is_integer and not is_span_of_time)

    def reason(self) -> Reason | None:
        """Why the column would not be modelled."""
        numbers = self.numbers
        if numbers.ends is None or numbers.low == numbers.high:
            return "empty" if numbers.ends is None else "constant"
        is_integer = self.column.is_integer  # of numeric columns, not of dates
        return "identifier" if is_integer and numbers.are_identifiers(self.draft.name) else None

    def left_out(self, reason: Reason) -> LeftOut:
        ends = self.numbers.ends
        if reason == "constant" and ends is not None:
            return LeftOut(reason, self.missing_share, 1, ends[0])
        return LeftOut(reason, self.missing_share, self.numbers.count)

    def features(self, scaling: Scaling) -> list[NumericFeature]:
        column, features = self.column, []
        is_integer = column.is_integer or column.unit is not None
        for part, numbers in self.parts.items():
            if part in CALENDAR_PARTS and numbers.low == numbers.high:
                continue  # it never varies, and says nothing
            known = numbers.take_sample()
            scaler = Scaler.fit(known, is_integer, scaling, numbers.step)
            unit = scaler.to_unit(known)
            grid = np.linspace(0.0, 1.0, MARGINAL_QUANTILES)
            quantiles = tuple(np.quantile(unit, grid).tolist()) if len(unit) else ()
            marginal = Marginal(self.missing_share, quantiles)
            bins = Bins.fit(unit.astype(np.float32).astype(np.float64))
            features.append(NumericFeature(column.name, part, scaler, marginal, bins))
        return features


class _Category:
    """A categorical column in the making."""

    width = 0
    infinite = 0

    def __init__(self, column: Column, source: TableSource, limit: int | None) -> None:
        self.column, self.source = column, source
        self.summary = LevelSummary(limit)

    def add(self, data: pa.ChunkedArray, kept: NDArray[np.bool_] | None) -> None:
        self.summary.add(category_text(data, self.column.type))

    @cached_property
    def counts(self) -> pa.Table:
        """Exact: read once more where memory did not hold all levels."""
        counts, name = self.summary.counts(), self.column.name
        if not self.summary.lost:
            return counts
        blocks = self.source.blocks([name])
        texts = (category_text(block[name], self.column.type) for block in blocks)
        return count_again(counts["text"], texts)

    @property
    def known(self) -> int:
        return self.source.rows - self.summary.missing

    def reason(self) -> Reason | None:
        return text_reason(self.counts, self.known)

    def left_out(self, reason: Reason) -> LeftOut:
        missing_share = 1.0 - self.known / self.source.rows
        if reason == "constant":
            return LeftOut(reason, missing_share, 1, self.counts["text"][0].as_py())
        return LeftOut(reason, missing_share, self.known)

    def feature(self, max_levels: int | None) -> CategoricalFeature:
        levels = Levels.of_counts(self.counts, max_levels)
        missing_share = self.summary.missing / self.source.rows
        rare = self.known - sum(levels.counts)
        return CategoricalFeature(self.column.name, levels, missing_share, rare)


def _refuse_equal_names(features: Iterable[Feature]) -> None:
    """A column called "when:month" next to a datetime column "when" would make two of a name."""
    for name, times in Counter(feature.name for feature in features).items():
        if times > 1:
            raise InputError(f"column {quoted(name)} has the name of a part of a datetime column")


# --- decoded numbers, levels and instants as columns of the type they came with

_DAY = 86_400


def restore_values(
    column: Column, values: NDArray[Any], valid: NDArray[np.bool_]
) -> pa.Array:  # (N,)
    """Numbers, or counts of the column's unit, in its own type: the nearest that it can hold."""
    kind = value_type(column.type)
    if pa.types.is_null(kind):
        restored = pa.nulls(len(values))
    elif column.unit is None:
        restored = _restore_numbers(values, valid, kind)
    else:  # text, if the column was text
        instants = Instants(values.astype(np.int64), valid, column.unit)
        restored = instants_to_arrow(instants).cast(kind, safe=False)
    if not pa.types.is_dictionary(column.type):
        return restored
    encoded = restored.dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        encoded.indices.cast(column.type.index_type),
        encoded.dictionary,
        ordered=column.type.ordered,
    )


def _restore_numbers(
    values: NDArray[Any], valid: NDArray[np.bool_], kind: pa.DataType
) -> pa.Array:  # (N,)
    if is_span(kind):
        return _from_counts(pa.array(_span_counts(values, kind), mask=~valid), kind)
    if pa.types.is_decimal(kind):
        return _decimal(values, valid, kind)
    if pa.types.is_boolean(kind):
        values = np.clip(values, 0, 1)
    elif pa.types.is_integer(kind):
        ends, ours = np.iinfo(kind.to_pandas_dtype()), np.iinfo(values.dtype)
        values = np.clip(values, max(ends.min, ours.min), min(ends.max, ours.max))
    return pa.array(values, mask=~valid).cast(kind, safe=not pa.types.is_floating(kind))


def restore_levels(codes: NDArray[np.int64], texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """A categorical column; code 0 is a missing cell."""
    index = pa.array(codes - 1, mask=codes == 0)
    if pa.types.is_dictionary(kind):
        values = _levels_as(texts, kind.value_type)
        if pa.types.is_null(kind.value_type):
            index, values = pa.nulls(len(codes), pa.int64()), pa.nulls(0)
        return pa.DictionaryArray.from_arrays(
            index.cast(kind.index_type), values, ordered=kind.ordered
        )
    return _levels_as(texts, kind).take(index)


def _levels_as(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Canonical text to the column's own type, once per level and not per row."""
    if pa.types.is_null(kind):
        return pa.nulls(len(texts))
    if is_span(kind):
        return _from_counts(texts.cast(pa.int64()), kind)
    if pa.types.is_timestamp(kind):
        return texts.cast(pa.timestamp(kind.unit)).cast(kind)
    return texts.cast(kind)


def _span_counts(values: NDArray[Any], kind: pa.DataType) -> NDArray[np.int64]:
    """Seconds to whole units; times of day stay within one day, durations within 64 bits."""
    per_second = PER_SECOND[kind.unit]
    counts = np.rint(values.astype(np.float64) * per_second)
    if pa.types.is_time(kind):
        return np.clip(counts, 0, _DAY * per_second - 1).astype(np.int64)
    return np.clip(counts, -(2.0**63), np.nextafter(2.0**63, 0.0)).astype(np.int64)


def _from_counts(counts: pa.Array, kind: pa.DataType) -> pa.Array:
    return (counts.cast(pa.int32()) if pa.types.is_time32(kind) else counts).cast(kind)


def _decimal(values: NDArray[Any], valid: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    largest = Fraction(10**kind.precision - 1) / Fraction(10) ** kind.scale
    if values.dtype.kind in "iu":
        ends = np.iinfo(values.dtype)
        most = min(int(largest), ends.max)
        values = np.clip(values, max(-most, ends.min), most)
        # Arrow refuses int64 → decimal128(5, 0) by type, whatever the values, but not by way of 38
        return pa.array(values, mask=~valid).cast(pa.decimal128(38, 0)).cast(kind)
    end = float(largest)
    while Fraction(end) > largest:
        end = float(np.nextafter(end, 0.0))
    return pa.array(np.clip(values, -end, end), mask=~valid).cast(kind)


# --- the codec


@dataclass(frozen=True, slots=True)
class TableCodec:
    """The map between tables and tensors that training rows determine; it never changes after.

    Through :meth:`to_unit` and :meth:`from_unit`, which stay in float64, categories and integers
    come back exactly and other numbers to within rounding; through :meth:`encode`, which narrows
    to float32, within 1e-6 of the column's range (``scaling`` states both limits).

    Examples:
        >>> codec = TableCodec.fit(pa.table({"age": [20, 30, None], "town": ["b", "a", "b"]}))
        >>> encoded = codec.encode(pa.table({"town": ["a"], "age": [25]}))
        >>> encoded.num.tolist(), encoded.cat.tolist()
        ([[0.5]], [[1]])
        >>> codec.decode(encoded.num, encoded.cat).to_pylist()
        [{'age': 25, 'town': 'a'}]
    """

    schema: TableSchema
    scaling: Scaling
    numeric: tuple[NumericFeature, ...]
    categorical: tuple[CategoricalFeature, ...]

    @classmethod
    def fit(
        cls,
        table: Any,
        overrides: Mapping[str, Kind] | None = None,
        scaling: Scaling = "min_max",
        max_levels: int | None = None,
        limits: MemoryLimits | None = None,
    ) -> TableCodec:
        """Learn ranges and levels from a table in files, or anything :func:`read_table` reads.

        ``max_levels`` keeps only a column's most frequent levels; the others encode as MISSING.
        ``limits`` bounds memory; a table too large for it has quantiles from a sample of its rows.
        """
        check_scaling(scaling)
        if max_levels is not None and max_levels < 1:
            raise InputError(f"max_levels must be at least 1, not {max_levels}")
        source = table if hasattr(type(table), "blocks") else TableInMemory(_in_arrow(table))
        drafts = draft_columns(source, overrides)
        categories = sum(column.kind == "categorical" for column in drafts)
        level_limit = None if limits is None else limits.level_bytes // max(1, categories)
        columns = {
            c.name: _Category(c, source, level_limit)
            if c.kind == "categorical"
            else _Numbers(c, source.rows)
            for c in drafts
        }
        # rows whose numbers are kept for quantiles: all that there is memory for, drawn evenly; the
        # draw depends on the number of rows alone, not on how they come in blocks
        numbers = source.rows * sum(column.width for column in columns.values())
        share = 1.0 if limits is None else limits.numbers / max(1, numbers)
        draw = np.random.default_rng(0)
        for block in source.blocks(source.schema.names):
            kept = None if share >= 1.0 else draw.random(block.num_rows) < share
            for name, column in columns.items():
                column.add(block[name], kept)
        chosen = overrides or {}
        reasons = {name: c.reason() for name, c in columns.items() if name not in chosen}
        if all(reasons.get(name) for name in columns):  # better a poor model than none
            reasons = {}
        left_out = {name: columns[name].left_out(why) for name, why in reasons.items() if why}
        modelled = [column for name, column in columns.items() if name not in left_out]
        codec = cls(
            TableSchema(
                tuple(replace(c.column, left_out=left_out.get(name)) for name, c in columns.items())
            ),
            scaling,
            tuple(f for c in modelled if isinstance(c, _Numbers) for f in c.features(scaling)),
            tuple(c.feature(max_levels) for c in modelled if isinstance(c, _Category)),
        )
        _refuse_equal_names(codec.features)
        infinite = {name: column.infinite for name, column in columns.items()}
        TableWarnings(infinite=infinite).warn(stacklevel=2)
        return codec

    @property
    def features(self) -> tuple[Feature, ...]:
        """One per model token, numeric first, each group in column order."""
        return (*(n.feature for n in self.numeric), *(c.feature for c in self.categorical))

    @property
    def places(self) -> dict[str, list[int]]:
        """Places of each modelled column's features: several of a date, else one."""
        places: dict[str, list[int]] = {}
        for place, feature in enumerate(self.features):
            places.setdefault(feature.column, []).append(place)
        return places

    def column_numbers(self) -> NDArray[np.int64]:
        """The column of every feature: the parts of a date have the same.  # (D,)"""
        numbers = {name: number for number, name in enumerate(self.places)}
        return np.array([numbers[feature.column] for feature in self.features], dtype=np.int64)

    @property
    def marginals(self) -> tuple[Marginal, ...]:
        """Training distribution of each feature, in the order of ``features``."""
        return (*(n.marginal for n in self.numeric), *(c.marginal for c in self.categorical))

    def encode(self, table: Any) -> EncodedTable:
        """Anything :func:`read_table` reads to tensors; columns are found by name.

        Infinite numbers and unknown levels become MISSING, with one warning each per call.
        """
        return self._encode(table, np.float32)

    def to_unit(self, table: Any) -> EncodedTable:
        """Like :meth:`encode`, in float64: the form from which integers decode exactly."""
        return self._encode(table, np.float64)

    def empty(self, rows: int, has_missing: bool) -> EncodedTable:
        """Memory for encoded rows, which :meth:`EncodedTable.write` fills."""
        n_num, n_cat = len(self.numeric), len(self.categorical)
        observed = torch.zeros(rows, n_num + n_cat, dtype=torch.bool) if has_missing else None
        cat = torch.zeros(rows, n_cat, dtype=torch.int64)
        return EncodedTable(torch.zeros(rows, n_num), cat, observed)

    def _encode(self, table: Any, dtype: type[np.floating[Any]]) -> EncodedTable:
        table = _in_arrow(table)
        odd = TableWarnings(extra=self._extra_names(table))
        rows, n_num = table.num_rows, len(self.numeric)
        x_num = np.zeros((rows, n_num))  # (N, F_num)
        x_cat = np.zeros((rows, len(self.categorical)), dtype=np.int64)  # (N, F_cat)
        observed = np.zeros((rows, n_num + len(self.categorical)), dtype=bool)  # (N, F)
        columns = {column.name: column for column in self.schema.modelled}
        for name in columns:
            refuse_unsupported(name, table[name].type)
        parts = {
            name: read_parts(column, table[name])
            for name, column in columns.items()
            if column.kind != "categorical"
        }
        for i, number in enumerate(self.numeric):
            read = parts[number.column]
            odd.infinite[number.column] = read.infinite
            if number.scaler.is_empty:  # nothing was learnt that a value could be placed on
                odd.unseen[number.column] = int(read.valid.sum())
                continue
            unit = number.scaler.to_unit(read.values[number.part])
            x_num[:, i] = np.where(read.valid, unit, 0.0)
            observed[:, i] = read.valid
        for j, category in enumerate(self.categorical):
            name, levels = category.column, category.levels
            text = category_text(table[name], columns[name].type, levels)
            x_cat[:, j] = levels.encode(text)
            observed[:, n_num + j] = x_cat[:, j] > 0
            odd.unseen[name] = rows - text.null_count - int(observed[:, n_num + j].sum())
        for name, left_out in self.schema.left_out.items():
            if left_out.reason == "empty" and name in table.column_names:
                missing = pc.is_null(table[name], nan_is_null=True).to_numpy()
                odd.unseen[name] = rows - int(missing.sum())
        odd.warn(stacklevel=3)
        num = torch.from_numpy(x_num.astype(dtype, copy=False))
        encoded = EncodedTable(num, torch.from_numpy(x_cat), torch.from_numpy(observed))
        return encoded.drop_full_mask()

    def missing_cells(self, table: pa.Table) -> dict[str, NDArray[np.bool_]]:  # (N,) each
        """Cells without a value in the columns the codec knows: missing, or infinite numbers.

        A level that training never saw is a value.
        """
        missing = {}
        for column in self.schema.columns:
            if column.left_out is not None and column.name not in table.column_names:
                continue
            data = table[column.name]
            if column.kind == "categorical" or column.left_out is not None:
                missing[column.name] = pc.is_null(data, nan_is_null=True).to_numpy()
            else:
                missing[column.name] = ~read_parts(column, data).valid
        return missing

    def unseen_cells(self, table: Any) -> dict[str, NDArray[np.bool_]]:  # (N,) each
        """Cells of each category with a level that is not among those of the training rows.

        They are encoded as MISSING. :attr:`CategoricalFeature.unseen_probability` says how likely
        such a level is.
        """
        table, columns = _in_arrow(table), self._columns()
        self._extra_names(table)  # an absent column is an error
        unseen = {}
        for category in self.categorical:
            name, levels = category.column, category.levels
            text = category_text(table[name], columns[name].type, levels)
            unseen[name] = text.is_valid().to_numpy() & (levels.encode(text) == 0)
        return unseen

    def decode(
        self,
        x_num: ArrayLike,  # (N, F_num)
        x_cat: ArrayLike,  # (N, F_cat)
        observed: ArrayLike | None = None,  # (N, F)
        clip: bool = True,
        on_step: bool = True,
    ) -> pa.Table:
        """Network scale back to a table with the original column order, names and types.

        A cell is missing where its code is 0, its number is not finite, or ``observed`` says so. Of
        columns that are not modelled, constant ones hold their value and others are missing.
        ``clip`` keeps numbers and dates within the training range; they are rounded to the step of
        the training values. Not ``on_step``, floats are not rounded: they may be means. Of a
        datetime column only the elapsed time is read.
        """
        numbers, codes = np.asarray(x_num, dtype=np.float64), np.asarray(x_cat, dtype=np.int64)
        self._check_shapes(numbers, codes)
        present = np.concatenate([np.isfinite(numbers), codes > 0], axis=1)  # (N, F)
        if observed is not None:
            present &= np.asarray(observed, dtype=bool)
        restored: dict[str, pa.Array] = {}
        columns = self._columns()
        for i, number in enumerate(self.numeric):
            if number.part in (VALUE, ELAPSED):
                column, unit = columns[number.column], np.where(present[:, i], numbers[:, i], 0.0)
                if number.scaler.is_empty:
                    restored[column.name] = pa.nulls(len(unit), column.type)
                    continue
                rounded = on_step or not pa.types.is_floating(column.type)
                values = number.scaler.from_unit(unit, clip, rounded)
                restored[column.name] = restore_values(column, values, present[:, i])
        for j, category in enumerate(self.categorical):
            shown = np.where(present[:, len(self.numeric) + j], codes[:, j], 0)
            kind = columns[category.column].type
            restored[category.column] = restore_levels(shown, category.levels.texts, kind)
        for name, left_out in self.schema.left_out.items():
            restored[name] = _restore_left_out(columns[name], left_out, len(numbers))
        return pa.table({name: restored[name] for name in self.schema.names})

    def from_unit(self, unit: EncodedTable, clip: bool = True) -> pa.Table:
        """The inverse of :meth:`to_unit`."""
        return self.decode(unit.num, unit.cat, unit.observed, clip)

    def to_json(self) -> dict[str, Any]:
        """Everything :meth:`from_json` needs, as plain JSON values; floats survive exactly."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "scaling": self.scaling,
            "columns": [_plain_column(column) for column in self.schema.columns],
            "numeric": [
                {
                    "column": item.column,
                    "part": item.part,
                    "missing_share": item.marginal.missing_share,
                    "quantiles": list(item.marginal.quantiles),
                    "bins": _plain(item.bins),
                    **_plain(item.scaler),
                }
                for item in self.numeric
            ],
            "categorical": [
                {
                    "column": category.column,
                    "missing_share": category.missing_share,
                    "rare": category.rare,
                    "levels": category.levels.texts.to_pylist(),
                    "counts": list(category.levels.counts),
                }
                for category in self.categorical
            ],
        }

    @classmethod
    def from_json(cls, value: Any) -> TableCodec:
        """The codec :meth:`to_json` described; anything else is an InputError."""
        return cls(**fitted_from_json(value))

    def _columns(self) -> dict[str, Column]:
        return {column.name: column for column in self.schema.columns}

    def _extra_names(self, table: pa.Table) -> list[str]:
        """Columns the codec does not know; one it needs and does not find is an error.

        It does not need those that are not modelled.
        """
        known, given = set(self.schema.names), set(table.column_names)
        absent = [column.name for column in self.schema.modelled if column.name not in given]
        if absent:
            close = suggestion(absent[0], given - known) if len(absent) == 1 else ""
            raise InputError(f"the table has no column {listed(absent)}{close}")
        return [name for name in table.column_names if name not in known]

    def _check_shapes(self, numbers: NDArray[np.float64], codes: NDArray[np.int64]) -> None:
        wanted = (len(numbers), len(self.numeric)), (len(numbers), len(self.categorical))
        if (numbers.shape, codes.shape) != wanted:
            raise ValueError(f"expected shapes {wanted}, got {numbers.shape} and {codes.shape}")
        for j, category in enumerate(self.categorical):
            column = codes[:, j]
            if len(column) and not (column.min() >= 0 and column.max() <= len(category.levels)):
                raise ValueError(f"codes of {category.column!r} are 0 to {len(category.levels)}")


def _restore_left_out(column: Column, left_out: LeftOut, rows: int) -> pa.Array:
    value = left_out.value
    if value is None:
        return pa.nulls(rows, column.type)
    if isinstance(value, str):
        texts = pa.array([value], pa.large_string())
        return restore_levels(np.ones(rows, dtype=np.int64), texts, column.type)
    return restore_values(column, np.full(rows, value), np.ones(rows, dtype=bool))


def infer_schema(table: Any, overrides: Mapping[str, Kind] | None = None) -> TableSchema:
    """What every column of a table is; one that cannot be encoded is refused."""
    with collect_warnings():
        return TableCodec.fit(table, overrides).schema


def _in_arrow(table: Any) -> pa.Table:
    return table.table if isinstance(table, TableInMemory) else read_table(table)


def _plain(item: Any) -> dict[str, Any]:
    values = {field.name: getattr(item, field.name) for field in fields(item)}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


def _plain_column(column: Column) -> dict[str, Any]:
    left_out = None if column.left_out is None else _plain(column.left_out)
    return {**_plain(column), "type": str(column.type), "left_out": left_out}
