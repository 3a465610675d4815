"""What a predictor reads: raw columns, embeddings or both, encoded, and how embeddings enter it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler
from torch import Tensor

from varjepa.evaluate.splits import Index
from varjepa.tables.codec import EncodedTable

BLOCK = 512
"""rows converted to float32 at a time where all rows are walked through"""


def token_blocks(tokens: Tensor, rows: Tensor) -> Iterator[Tensor]:
    """Some rows of tokens that may be large, half precise or on a GPU.  # (B, D, d) float32"""
    for block in rows.split(BLOCK):
        yield tokens[block.to(tokens.device)].to("cpu", torch.float32)


@dataclass(frozen=True, slots=True)
class RawFeatures:
    """Columns as they come, before any scaling."""

    numeric: NDArray[Any]  # (n, F_num) floats, NaN where missing
    categorical: NDArray[np.int64]  # (n, F_cat) levels 1..L, 0 where missing

    @classmethod
    def from_numeric(cls, values: ArrayLike) -> RawFeatures:
        numeric = np.asarray(values, dtype=np.float64)
        return cls(numeric, np.empty((len(numeric), 0), dtype=np.int64))

    @classmethod
    def from_table(cls, table: EncodedTable) -> RawFeatures:
        """The columns of an encoded table; its unobserved cells are the missing ones."""
        numeric = table.num.numpy().astype(np.float64)
        if table.observed is not None:
            numeric[~table.observed[:, : numeric.shape[1]].numpy()] = np.nan
        return cls(numeric, table.cat.numpy())

    def __len__(self) -> int:
        return len(self.numeric)

    def rows(self, index: Index) -> RawFeatures:
        return RawFeatures(self.numeric[index], self.categorical[index])


@dataclass(frozen=True, slots=True)
class Tokens:
    """Embeddings, d numbers for each of D features.

    They stay where and how they are stored (half precision, a memory map, either device); only
    batches of them are converted.
    """

    values: Tensor  # (n, D, d) any floating type
    standardise: bool = False
    """centre and scale every coordinate with the training rows' moments"""

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Raw features, tokens or both; both are concatenated in the predictor."""

    raw: RawFeatures | None = None
    tokens: Tokens | None = None

    def __len__(self) -> int:
        part = self.tokens if self.raw is None else self.raw
        assert part is not None
        return len(part)


# --- Raw columns to numbers with scikit-learn's encoders, fitted on training rows only.

RawForm = Literal["one-hot", "min-max", "codes", "trees"]
"""Standardised numbers and one-hot levels; numbers in [0, 1] and one-hot levels; standardised
numbers and level codes; numbers as they are with NaN for missing, and one-hot levels."""

MAX_LEVELS = 256
"""Rarer levels of a column beyond this many share one."""


@dataclass(frozen=True, slots=True)
class RawMatrix:
    numeric: NDArray[np.float32]  # (n, F)
    codes: NDArray[np.int64]  # (n, C), 0 for a level the training rows do not have


class RawEncoder:
    """Missing numbers become the column's mean (trees see NaN), a missing level is a level."""

    def __init__(self, form: RawForm) -> None:
        self.form = form

    def fit(self, raw: RawFeatures) -> RawEncoder:
        self.levels: tuple[int, ...] = ()
        self._numeric: Any = None
        self._levels: Any = None
        if raw.numeric.shape[1] and self.form != "trees":
            scaler = MinMaxScaler() if self.form == "min-max" else StandardScaler()
            imputer = SimpleImputer(strategy="mean", keep_empty_features=True)
            self._numeric = make_pipeline(imputer, scaler).fit(_finite(raw.numeric))
        if raw.categorical.shape[1] and self.form == "codes":
            self._levels = OrdinalEncoder(
                handle_unknown="use_encoded_value", unknown_value=-1, max_categories=MAX_LEVELS
            ).fit(raw.categorical)
            highest = self._levels.transform(raw.categorical).max(0)
            self.levels = tuple(int(code) + 2 for code in highest)  # code 0 is an unseen level
        elif raw.categorical.shape[1]:
            self._levels = OneHotEncoder(
                handle_unknown="infrequent_if_exist",
                max_categories=MAX_LEVELS,
                sparse_output=False,
                dtype=np.float32,
            ).fit(raw.categorical)
        return self

    def transform(self, raw: RawFeatures) -> RawMatrix:
        values = _finite(raw.numeric)
        if self._numeric is not None:
            values = self._numeric.transform(values)
        numeric = values.astype(np.float32)
        codes = np.empty((len(raw), 0), dtype=np.int64)
        if self._levels is not None and self.form == "codes":
            codes = self._levels.transform(raw.categorical).astype(np.int64) + 1
        elif self._levels is not None:
            numeric = np.concatenate([numeric, self._levels.transform(raw.categorical)], axis=1)
        return RawMatrix(numeric, codes)


def _finite(numeric: NDArray[Any]) -> NDArray[np.float64]:
    """Infinite numbers count as missing."""
    values = np.asarray(numeric, dtype=np.float64)
    return np.where(np.isfinite(values), values, np.nan)


# --- Principal components of embeddings: of each column's tokens, or of all columns together. A
# column's d numbers lie near a few directions: trees are nearly as accurate with these as with all
# D · d numbers, and grow several times faster (results/tree-components.json at 02cf438). Where
# columns are many and alike, as pixels are, a few directions of all of them together serve better
# (results/adapters-principal.json at 02cf438).

ROUNDING = 1e-6
"""share of the largest variance below which tokens in half precision say nothing"""


@dataclass(frozen=True, slots=True)
class ComponentSizes:
    """How many components are kept; those of a column are fewer where columns are many."""

    numbers: int = 2048
    """about so many of all columns,"""
    most: int = 16
    """of one column at most so many"""
    fewest: int = 2
    """and at least so many"""
    together: int = 64
    """of all columns taken as one, as many as a token has numbers"""

    def of_one(self, columns: int) -> int:
        """k, of one of so many columns."""
        return min(self.most, max(self.fewest, self.numbers // columns))


SIZES = ComponentSizes()


@dataclass(frozen=True, slots=True)
class TokenComponents:
    """Directions in which a column's tokens vary most, k for each of D columns."""

    mean: Tensor  # (D, d)
    directions: Tensor  # (D, d, k)

    @classmethod
    def fit(cls, tokens: Tensor, rows: Tensor) -> TokenComponents:
        """From some rows of tokens (n, D, d)."""
        columns, width = tokens.shape[1:]
        total = torch.zeros(columns, width, dtype=torch.float64)
        for block in token_blocks(tokens, rows):
            total += block.double().sum(0)
        mean = total / len(rows)
        scatter = torch.zeros(columns, width, width, dtype=torch.float64)
        for block in token_blocks(tokens, rows):
            centred = (block.double() - mean).transpose(0, 1)  # (D, B, d)
            scatter += centred.mT @ centred
        vectors = torch.linalg.eigh(scatter).eigenvectors.flip(-1)  # most variance first
        directions = vectors[..., : min(width, SIZES.of_one(columns))]
        return cls(mean.float(), _same_sign(directions).float())

    def transform(self, tokens: Tensor, rows: Tensor | None = None) -> Tensor:
        """All rows of tokens, or some: (n, D, d) → (n, D · k)"""
        rows = torch.arange(len(tokens)) if rows is None else rows
        parts = [
            torch.einsum("bcd,cdk->bck", block - self.mean, self.directions).flatten(1)
            for block in token_blocks(tokens, rows)
        ]
        return torch.cat(parts) if parts else torch.empty(0, self.directions[:, 0].numel())


@dataclass(frozen=True, slots=True)
class PrincipalComponents:
    """Directions in which the components of all columns vary together, scaled to unit variance."""

    columns: TokenComponents
    mean: Tensor  # (D · k,)
    directions: Tensor  # (D · k, p)

    @classmethod
    def fit(cls, tokens: Tensor, rows: Tensor) -> PrincipalComponents:
        """From some rows of tokens (n, D, d)."""
        columns = TokenComponents.fit(tokens, rows)
        values = columns.transform(tokens, rows).double()
        mean = values.mean(0)
        variances, vectors = torch.linalg.eigh(torch.cov(values.T, correction=0))
        variances, vectors = (
            variances.flip(0)[: SIZES.together],
            vectors.flip(-1)[:, : SIZES.together],
        )
        varies = variances > ROUNDING * variances[0]  # few rows have few directions
        varies[0] = True  # a predictor needs a column, even one that says nothing
        constant = variances[0] <= ROUNDING * columns.mean.double().square().sum()
        scale = 1.0 if constant else variances[varies].sqrt()
        directions = _same_sign(vectors[:, varies]) / scale
        return cls(columns, mean.float(), directions.float())

    def transform(self, tokens: Tensor) -> Tensor:
        """(n, D, d) → (n, p)"""
        return (self.columns.transform(tokens) - self.mean) @ self.directions


def _same_sign(directions: Tensor) -> Tensor:
    """An eigenvector's sign is open: its largest entry is positive here."""
    largest = directions.gather(-2, directions.abs().argmax(-2, keepdim=True))
    return directions * largest.sign()


# --- How embeddings (n, D, d) enter a predictor that was made for columns.

Adapter = Literal["linear", "column", "flat", "tokens", "mean", "components", "principal"]
"""
- ``linear``: a learned Linear(D·d → D) whose outputs are D numeric columns, as in T-JEPA's code
- ``column``: a learned Linear(d → 1) for each token: D numeric columns from 1/D of the weights
- ``flat``: D·d numeric columns
- ``tokens``: D tokens, for the predictors that work on tokens
- ``mean``: the mean over tokens, d numeric columns
- ``components``: the first principal components of each column's tokens, for trees
- ``principal``: the first 64 of all columns together, where columns are many and alike
"""

DEFAULT_ADAPTER: dict[str, Adapter] = {
    "linear_probe": "flat",
    "mlp": "linear",
    "dcn_v2": "linear",
    "resnet": "flat",
    "autoint": "tokens",
    "ft_transformer": "linear",
    "xgboost": "flat",
}
"""The paper's probe is one Linear on all tokens; the others were chosen on validation rows among
``linear``, ``flat``, ``tokens`` and ``mean`` (paper/results/adapters.json)."""


# --- Encoded rows, wherever they are stored, and the batches a network sees of them.

COMPONENTS: Mapping[str, type[TokenComponents | PrincipalComponents]] = {
    "components": TokenComponents,
    "principal": PrincipalComponents,
}
"""adapters that are fitted without labels, once, when rows are encoded"""


@dataclass(frozen=True, slots=True)
class InputShape:
    numeric: int
    """F, plain numbers"""
    levels: tuple[int, ...] = ()
    """for each of C categorical columns, how many codes it has"""
    tokens: tuple[int, int] | None = None
    """(D, d)"""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of R networks, each its own."""

    numeric: Tensor  # (R, B, F)
    codes: Tensor  # (R, B, C)
    tokens: Tensor | None  # (R, B, D, d) float32

    def expand(self, runs: int) -> Batch:
        n, c, t = (
            None if part is None else part.expand(runs, *part.shape[1:])
            for part in (self.numeric, self.codes, self.tokens)
        )
        assert n is not None and c is not None
        return Batch(n, c, t)


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """All rows; the tokens in their own precision, perhaps on another device than the rest."""

    numeric: Tensor  # (n, F) float32
    codes: Tensor  # (n, C) int64
    tokens: Tensor | None  # (n, D, d)
    moments: tuple[Tensor, Tensor] | None  # mean and scale of the tokens, (D, d) each

    def __len__(self) -> int:
        return len(self.numeric)

    def take(self, rows: Tensor) -> Batch:
        tokens = None
        if self.tokens is not None:
            tokens = self.tokens[rows.to(self.tokens.device)]
            tokens = tokens.to(self.numeric.device, torch.float32)
            if self.moments is not None:
                tokens = (tokens - self.moments[0]) / self.moments[1]
        return Batch(self.numeric[rows], self.codes[rows], tokens)

    def is_on(self, device: torch.device) -> bool:
        """Whether no batch has to travel."""
        return self.numeric.device == device and (
            self.tokens is None or self.tokens.device == device
        )

    def to(self, device: torch.device | str) -> EncodedRows:
        """On a device; tokens that would fill it stay behind and follow batch by batch."""
        tokens = self.tokens
        if tokens is not None and _fits(tokens, torch.device(device)):
            tokens = tokens.to(device)
        moments = self.moments
        if moments is not None:
            moments = (moments[0].to(device), moments[1].to(device))
        return EncodedRows(self.numeric.to(device), self.codes.to(device), tokens, moments)


class InputEncoder:
    """From inputs to encoded rows, the same way for every row; fitted on training rows."""

    def __init__(self, form: RawForm, adapter: Adapter) -> None:
        self.adapter = adapter
        self.raw = RawEncoder(form)

    def fit(self, inputs: Inputs, train: Index) -> InputEncoder:
        if inputs.raw is not None:
            self.raw.fit(inputs.raw.rows(train))
        self.moments: tuple[Tensor, Tensor] | None = None
        self.components: TokenComponents | PrincipalComponents | None = None
        if inputs.tokens is not None:
            tokens, rows = inputs.tokens.values, torch.from_numpy(train)
            if self.adapter in COMPONENTS:  # of the tokens as they are
                self.components = COMPONENTS[self.adapter].fit(tokens, rows)
            elif inputs.tokens.standardise:
                self.moments = token_moments(tokens, rows)
        return self

    def transform(self, inputs: Inputs) -> EncodedRows:
        numeric = torch.empty(len(inputs), 0)
        codes = torch.empty(len(inputs), 0, dtype=torch.long)
        if inputs.raw is not None:
            matrix = self.raw.transform(inputs.raw)
            numeric, codes = torch.from_numpy(matrix.numeric), torch.from_numpy(matrix.codes)
        if inputs.tokens is None:
            return EncodedRows(numeric, codes, None, None)
        tokens = inputs.tokens.values
        if self.components is not None:
            numeric = torch.cat([numeric, self.components.transform(tokens)], 1)
            return EncodedRows(numeric, codes, None, None)
        rows = EncodedRows(numeric, codes, tokens, self.moments)
        return _averaged(rows) if self.adapter == "mean" else rows

    def shape(self, rows: EncodedRows) -> InputShape:
        levels = self.raw.levels if rows.codes.shape[1] else ()
        tokens = None if rows.tokens is None else (rows.tokens.shape[1], rows.tokens.shape[2])
        return InputShape(rows.numeric.shape[1], levels, tokens)


def token_moments(values: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of every coordinate over some rows, a block at a time.

    A constant coordinate gets scale 1.
    """
    total = torch.zeros(values.shape[1:], dtype=torch.float64)
    squares = torch.zeros_like(total)
    for block in token_blocks(values, rows):
        total += block.double().sum(0)
        squares += block.double().square().sum(0)
    mean = total / len(rows)
    std = (squares / len(rows) - mean.square()).clamp_min(0.0).sqrt()
    tiny = std <= 1e-6 * mean.abs().clamp_min(1e-6)
    return mean.float(), std.masked_fill(tiny, 1.0).float()


def _averaged(rows: EncodedRows) -> EncodedRows:
    """The mean over tokens joins the numbers, and the tokens themselves are not needed any more."""
    means = []
    for block in torch.arange(len(rows)).split(BLOCK):
        tokens = rows.take(block[None]).tokens
        assert tokens is not None
        means.append(tokens[0].mean(1))  # (B, d); the block's tokens are freed
    numeric = torch.cat([rows.numeric, torch.cat(means)], 1)
    return replace(rows, numeric=numeric, tokens=None, moments=None)


def _fits(tokens: Tensor, device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return tokens.nbytes < free // 2


def row_index(rows: Index, device: torch.device | str) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(rows, dtype=np.int64)).to(device)
