"""Encoded rows, wherever they are stored, and the batches a network sees of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from varjepa.downstream.adapters import Adapter
from varjepa.downstream.components import PrincipalComponents, TokenComponents
from varjepa.downstream.encoding import RawEncoder, RawForm, RawScaling
from varjepa.downstream.inputs import BLOCK, Index, Inputs, token_blocks

COMPONENTS: Mapping[str, type[TokenComponents | PrincipalComponents]] = {
    "components": TokenComponents,
    "principal": PrincipalComponents,
}
"""adapters that are fitted without labels, once, when rows are encoded"""


@dataclass(frozen=True, slots=True)
class InputShape:
    """What a row consists of."""

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
        """The same rows for several networks."""
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
        """The rows (R, B) of R networks."""
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

    def __init__(self, form: RawForm, adapter: Adapter, scaling: RawScaling = "standard") -> None:
        self.adapter = adapter
        self.raw = RawEncoder(form, scaling)

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
