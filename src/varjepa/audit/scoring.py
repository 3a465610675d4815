"""Rows of a table scored cell by cell, and the distributions of cells that look wrong.

What the model shall not see is taken out first: numbers far beyond their column, texts of one row
only, numbers in another form. These are scored by themselves, and their neighbours better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from varjepa.audit.asking import Ask, ask_cells, groups_of
from varjepa.audit.odds import (
    FAR,
    SPREADS,
    ErrorModel,
    NumberTails,
    cell_details,
    cell_odds,
    spread,
    tail_odds,
)
from varjepa.audit.text import (
    MOST_CONTEXT,
    MOST_TEXTS,
    NEW_TEXT,
    TIMES,
    TextColumn,
    plain_number,
    similarities,
)
from varjepa.estimators import VarTJEPA
from varjepa.estimators.calibration import level_for
from varjepa.estimators.fitting import join_rows
from varjepa.models.masking import FeatureMasks
from varjepa.models.var_t_jepa import VarTJepa
from varjepa.tables import TableCodec
from varjepa.tables.codec import EncodedTable
from varjepa.tables.columns import VALUE, category_text, read_parts
from varjepa.tables.messages import collect_warnings
from varjepa.tables.values import (
    ELAPSED,
    is_text,
    refuse_unsupported,
    undictionary,
    value_type,
)

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

FORM_ODDS = 12.0
"""T of a number in another form than its column's."""

SUSPECT_ODDS = 3.0
"""T from which a cell is taken out while its neighbours are scored once more."""

COVERAGE = 0.9
"""Of the intervals."""


@dataclass(frozen=True, slots=True)
class Scores:
    """T of every audited cell of some rows, NaN where a cell is missing."""

    odds: Floats  # (N, C)
    nll: Floats  # (N, C) −log p; NaN where the model has no say
    certain: Bools  # (N, C): wrong by a rule, and no part of the null distribution
    rows: EncodedTable
    """with suspicious cells marked as not observed"""
    numbers: NDArray[np.float32]  # (N, F_num) in network scale
    """also those that are far away; NaN where there is none"""

    def take(self, index: NDArray[np.int64]) -> Scores:
        rows = self.rows.take(torch.as_tensor(index))
        return Scores(
            self.odds[index], self.nll[index], self.certain[index], rows, self.numbers[index]
        )


def joined(parts: Sequence[Scores]) -> Scores:
    """Rows below each other."""
    rows = parts[0].rows
    for part in parts[1:]:
        rows = join_rows(rows, part.rows)
    odds = np.concatenate([part.odds for part in parts])
    nll = np.concatenate([part.nll for part in parts])
    certain = np.concatenate([part.certain for part in parts])
    return Scores(odds, nll, certain, rows, np.concatenate([part.numbers for part in parts]))


class CellScorer:
    """A fitted model and what is known of every column apart from it.

    ``levels``: the codec whose levels and counts tell rare texts, if it is not the model's.
    """

    def __init__(self, model: VarTJEPA, levels: TableCodec | None = None) -> None:
        self.model, codec = model, model.codec_
        self.codec = codec
        self.left_out = (levels or codec).schema.left_out
        self.names = [column.name for column in codec.schema.modelled]
        self.kinds = {column.name: column.kind for column in codec.schema.modelled}
        self.errors = ErrorModel.of(codec, model.settings("architecture").numbers == "bins")
        self.tails = number_tails(codec)
        counted = {c.column: c for c in (levels or codec).categorical}
        self.texts = {c.column: TextColumn.of(counted[c.column].levels) for c in codec.categorical}
        self.unseen = {c.column: counted[c.column].unseen_probability for c in codec.categorical}
        self.features = codec.places
        self.places = {c.column: j for j, c in enumerate(codec.categorical)}
        self.groups = groups_of(codec.column_numbers())
        """of columns that are left out at a time, of every feature"""

    # --- scores

    def score(self, table: pa.Table, again: bool = True) -> Scores:
        """Two passes: in the second one, no cell is scored by others that look wrong."""
        view = ModelView.of(self.codec, self.tails, table)
        with collect_warnings():
            rows = self.codec.encode(view.table)
            given = rows if view.table is view.given else self.codec.encode(view.given)
        numbers = given.num.cpu().numpy().copy()
        numbers[~given.known.cpu().numpy()[:, : numbers.shape[1]]] = np.nan
        odds, nll = self._passes(rows)
        seen = rows.known.cpu().numpy()
        rare = self._rare_texts(view)
        if again:
            first = odds.copy()
            self._add_own(first, view, rare, {})
            rows, changed = self._without_suspects(rows, first)
            if len(changed):
                odds[changed], _ = self._passes(rows.take(torch.as_tensor(changed)))
        self._add_own(odds, view, rare, self._level_probabilities(rows, rare))
        missing = np.column_stack([view.missing[name] for name in self.names])
        certain = np.column_stack([view.odd_form[name] for name in self.names])
        unseen = np.column_stack([~seen[:, self.features[name]].all(1) for name in self.names])
        return Scores(
            np.where(missing, np.nan, odds),
            np.where(unseen | certain, np.nan, nll),
            certain,
            rows,
            numbers,
        )

    def _passes(self, rows: EncodedTable) -> tuple[Floats, Floats]:
        """T and −log p by column; a date has the mean odds of its parts.  # (N, C) each"""
        features = len(self.groups)
        answers = self._ask(
            rows,
            np.ones((len(rows), self.groups.max() + 1), dtype=bool),
            np.tile(np.arange(features), 2),
            lambda model, part, masks: cell_odds(
                model, part, masks, self.errors.to(part.num.device)
            ),
        )
        cells: Floats = answers.reshape(len(rows), 2, features).astype(np.float64)
        odds = [_mean_odds(cells[:, 0, self.features[name]]) for name in self.names]
        nll = [cells[:, 1, self.features[name]].mean(1) for name in self.names]
        return np.column_stack(odds), np.column_stack(nll)

    def _ask(
        self, rows: EncodedTable, asked: Bools, features: NDArray[np.int64], ask: Ask
    ) -> NDArray[np.float32]:
        return ask_cells(self.model, rows, asked, self.groups, features, ask)

    def _without_suspects(
        self, rows: EncodedTable, odds: Floats
    ) -> tuple[EncodedTable, NDArray[np.int64]]:
        """Rows without their suspicious cells, at most half of each; and which rows had any."""
        limit = np.sort(odds, axis=1)[:, -(1 + odds.shape[1] // 2)] if odds.shape[1] > 1 else np.inf
        suspect = (odds >= SUSPECT_ODDS) & (odds > np.reshape(limit, (-1, 1)))
        changed = np.flatnonzero(suspect.any(1))
        observed = rows.known.cpu().numpy().copy()
        for j, name in enumerate(self.names):
            observed[:, self.features[name]] &= ~suspect[:, [j]]
        device = rows.num.device
        return EncodedTable(rows.num, rows.cat, torch.as_tensor(observed, device=device)), changed

    # --- what the model does not say

    def _add_own(
        self,
        odds: Floats,
        view: ModelView,
        rare: Mapping[str, NDArray[np.int64]],
        context: Mapping[str, Floats],
    ) -> None:
        """Tails of numbers, forms, and rare texts, in place.

        ``context`` are probabilities of levels in the rows of rare texts, where they are known.
        """
        for j, name in enumerate(self.names):
            if name in view.distance:
                x = view.distance[name]
                odds[:, j] = np.where(x > FAR, 0.0, odds[:, j]) + tail_odds(x)
            if name in rare:
                self._add_rare(odds[:, j], name, view.texts[name], rare[name], context.get(name))
            odds[view.odd_form[name], j] = FORM_ODDS

    def _rare_texts(self, view: ModelView) -> dict[str, NDArray[np.int64]]:
        """Rows whose text the model does not know, or that may be a typing error."""
        found = {}
        for name, texts in view.texts.items():
            column = self.texts[name]
            most = column.counts.max(initial=0)
            may_be = {t for t, i in column.known.items() if TIMES * column.counts[i] <= most}
            model_knows = set(self.codec.categorical[self.places[name]].levels.texts.to_pylist())
            rows = [
                i
                for i, text in enumerate(texts)
                if text is not None and (text in may_be or text not in model_knows)
            ]
            found[name] = np.array(rows, dtype=np.int64)
        return found

    def _level_probabilities(
        self, rows: EncodedTable, rare: Mapping[str, NDArray[np.int64]]
    ) -> dict[str, Floats]:
        """P of the model's levels in the rows of rare texts.  # (rows, L) each"""
        wanted = np.unique(np.concatenate([*rare.values(), np.empty(0, dtype=np.int64)]))
        asked = {name: np.searchsorted(wanted, places) for name, places in rare.items()}
        found = self.details(rows.take(torch.as_tensor(wanted)), asked)
        return {name: found.levels[self.places[name]][places] for name, places in asked.items()}

    def _add_rare(
        self,
        odds: Floats,
        name: str,
        texts: Sequence[str | None],
        rows: NDArray[np.int64],
        probabilities: Floats | None,
    ) -> None:
        """T of rare texts: how rare, how close to others, and what the row says of those."""
        close = self.meanings(name, [str(texts[i]) for i in rows])
        column, marginal = self.texts[name], self.frequencies[name]
        known = set(self.codec.categorical[self.places[name]].levels.texts.to_pylist())
        for place, i in enumerate(rows):
            text = str(texts[i])
            weights, closeness = close.get(text, (None, 0.0))
            if text not in known:
                odds[i] = np.log(NEW_TEXT[0 if closeness else 1] / self.unseen[name])
            elif text in column.known and (count := column.counts[column.known[text]]) > 1:
                odds[i] -= np.log((count - 1.0) / count)  # its own row is no evidence for it
            if weights is not None and closeness:
                odds[i] += closeness
                if probabilities is not None:
                    w = np.exp(weights - weights.max())
                    ratio = (w @ probabilities[place] + 1e-9) / (w @ marginal + 1e-9)
                    odds[i] += np.log(np.clip(ratio, 1 / MOST_CONTEXT, MOST_CONTEXT))

    @cached_property
    def frequencies(self) -> dict[str, Floats]:
        """Share of each of the model's levels."""
        return {c.column: c.marginal.frequencies() for c in self.codec.categorical}

    def meanings(self, name: str, texts: Sequence[str]) -> dict[str, tuple[Floats, float]]:
        """Per text: log weight of each of the model's levels as its meaning, and log odds."""
        column = self.texts[name]
        model_levels = self.codec.categorical[self.places[name]].levels.texts.to_pylist()
        places = {text: i for i, text in enumerate(model_levels)}
        different = list(dict.fromkeys(texts))[:MOST_TEXTS]
        frequent = [column.levels[i] for i in column.frequent]
        if not frequent or not different:
            return {}
        found = {}
        for text, similar in zip(different, similarities(different, frequent), strict=True):
            weights, closeness = column.closeness(text, similar)
            if closeness:
                wide = np.full(len(model_levels), -np.inf)
                for level, weight in zip(frequent, weights, strict=True):
                    if level in places:
                        wide[places[level]] = weight
                if np.isfinite(wide).any():
                    found[text] = wide, closeness
        return found

    # --- distributions

    def details(self, rows: EncodedTable, asked: Mapping[str, NDArray[np.int64]]) -> Details:
        """Distributions of cells, each given the observed cells of other columns.

        ``asked`` are the rows whose cells of a column are asked for; the others' are 0.
        """
        codec = self.codec
        numeric, levels = len(codec.numeric), [len(c.levels) for c in codec.categorical]
        bins = max((len(n.bins) for n in codec.numeric), default=0) if self.errors.has_bins else 0
        numbers = np.arange(numeric)
        categories = np.repeat(numeric + np.arange(len(levels)), levels)
        features = [*[numbers] * 4, categories, np.repeat(numbers, bins)]
        mass = torch.as_tensor(level_for(self.model.calibration_, COVERAGE).reshape(-1))
        quantiles = [np.array(number.marginal.quantiles) for number in codec.numeric]
        spreads = [spread(q) if len(q) else 0.0 for q in quantiles]
        within = SPREADS * torch.tensor(spreads, dtype=torch.float32)

        def ask(model: VarTJepa, part: EncodedTable, masks: FeatureMasks) -> torch.Tensor:
            device = part.num.device
            return cell_details(model, part, masks, mass.to(device), within.to(device))

        of_groups = np.zeros((len(rows), self.groups.max() + 1), dtype=bool)
        for name, places in asked.items():
            of_groups[places, self.groups[self.features[name][0]]] = True
        found = self._ask(rows, of_groups, np.concatenate(features), ask)
        ends = np.cumsum([numeric] * 4 + levels)
        median, lower, upper, confidence, *each, masses = np.split(found, ends, axis=1)
        return Details(
            median,
            lower,
            upper,
            confidence,
            tuple(p.astype(np.float64) for p in each),
            masses.reshape(len(rows), numeric, bins),
        )


@dataclass(frozen=True, slots=True)
class Details:
    """Distributions of cells in network scale."""

    median: NDArray[np.float32]  # (N, F_num)
    lower: NDArray[np.float32]
    upper: NDArray[np.float32]
    confidence: NDArray[np.float32]
    levels: tuple[Floats, ...]  # (N, L) of each category
    bins: NDArray[np.float32]  # (N, F_num, T)


def _mean_odds(parts: Floats) -> Floats:
    """Log of the mean of exp(T): a mean of e-values is one.  # (N, parts) → (N,)"""
    top = parts.max(1, keepdims=True)
    return (top + np.log(np.exp(parts - top).mean(1, keepdims=True)))[:, 0]


def number_tails(codec: TableCodec) -> dict[str, NumberTails]:
    """By column; of a date, the time that elapsed: its other parts come round again."""
    found = {
        number.column: NumberTails.of(number)
        for number in codec.numeric
        if number.part in (VALUE, ELAPSED)
    }
    return {name: tails for name, tails in found.items() if tails is not None}


@dataclass(frozen=True, slots=True)
class ModelView:
    """A table as the model is to see it, and what was taken out."""

    table: pa.Table
    given: pa.Table
    """the same with numbers that are far away"""
    missing: dict[str, Bools]
    """cells without a value, which have no score"""
    odd_form: dict[str, Bools]
    """numbers in another form than the column's, and words among numbers"""
    distance: dict[str, Floats]
    """of numbers, in units of their column's tail"""
    texts: dict[str, list[str | None]]
    """of categories"""

    @classmethod
    def of(cls, codec: TableCodec, tails: Mapping[str, NumberTails], table: pa.Table) -> ModelView:
        """Numbers that are far away and words among numbers are missing to the model."""
        columns = {name: table[name] for name in table.column_names}
        levels = {category.column: category.levels for category in codec.categorical}
        near, missing, odd_form, distance = {}, {}, {}, {}
        texts: dict[str, list[str | None]] = {}
        for column in codec.schema.modelled:
            name = column.name
            if name not in columns:
                continue  # the codec says so in its own words
            refuse_unsupported(name, table[name].type)
            odd_form[name] = np.zeros(table.num_rows, dtype=bool)
            if column.kind == "categorical":
                text = category_text(table[name], column.type, levels[name])
                texts[name] = text.to_pylist()
                missing[name] = text.is_null().to_numpy()
                continue
            if column.kind == "numeric" and is_text(value_type(table[name].type)):
                columns[name], odd_form[name] = numbers_in_text(table[name])
            parts = read_parts(column, columns[name])
            missing[name] = ~parts.valid & ~odd_form[name]
            if name in tails:
                values = next(iter(parts.values.values())).astype(np.float64)
                x = np.where(parts.valid, tails[name].distance(values), 0.0)
                distance[name] = x
                if (x > FAR).any():
                    keep = pa.array(np.arange(table.num_rows), mask=x > FAR)
                    near[name] = columns[name].take(keep)
        given = pa.table(columns)
        seen = pa.table(columns | near) if near else given
        return cls(seen, given, missing, odd_form, distance, texts)


def numbers_in_text(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, Bools]:
    """Text of numbers with the plain number wherever there is one; which cells were not plain."""
    text = undictionary(column).cast(pa.large_string())
    different = pc.unique(text).to_pylist()
    plain = {one: plain_number(one) for one in different if one is not None}
    odd = {one: number for one, number in plain.items() if number != one}
    return replace_texts(text, odd) if odd else (column, np.zeros(len(column), dtype=bool))


def replace_texts(
    text: pa.ChunkedArray, new: Mapping[str, str | None]
) -> tuple[pa.ChunkedArray, Bools]:
    """A column with other texts in the place of some; which cells had these."""
    old, others = (pa.array(list(part), pa.large_string()) for part in (new, new.values()))
    places = pc.index_in(text, value_set=old).combine_chunks()
    replaced = pc.if_else(places.is_valid(), others.take(places), text)
    return replaced, places.is_valid().to_numpy(zero_copy_only=False)
