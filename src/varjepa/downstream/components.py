"""Principal components of embeddings: of each column's tokens, or of all columns together.

A column's d numbers lie near a few directions. Trees that are given these are as right as with all
D · d numbers, and grow several times faster. Where columns are many and alike, as pixels are, a
few directions of all of them together serve better.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from varjepa.downstream.inputs import BLOCK

NUMBERS = 2048
"""about so many of all columns together,"""
MOST, FEWEST = 16, 2
"""and of one column between these"""
TOGETHER = 64
"""of all columns taken as one, as many as a token has numbers"""


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
        for block in _blocks(tokens, rows):
            total += block.double().sum(0)
        mean = total / len(rows)
        scatter = torch.zeros(columns, width, width, dtype=torch.float64)
        for block in _blocks(tokens, rows):
            centred = (block.double() - mean).transpose(0, 1)  # (D, B, d)
            scatter += centred.mT @ centred
        vectors = torch.linalg.eigh(scatter).eigenvectors.flip(-1)  # most variance first
        directions = vectors[..., : min(width, components_of(columns))]
        return cls(mean.float(), _same_sign(directions).float())

    def transform(self, tokens: Tensor) -> Tensor:
        """(n, D, d) → (n, D · k)"""
        every = torch.arange(len(tokens))
        parts = [
            torch.einsum("bcd,cdk->bck", block - self.mean, self.directions).flatten(1)
            for block in _blocks(tokens, every)
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
        values = columns.transform(tokens[rows.to(tokens.device)]).double()
        mean = values.mean(0)
        variances, vectors = torch.linalg.eigh(torch.cov(values.T, correction=0))
        variances, vectors = variances.flip(0)[:TOGETHER], vectors.flip(-1)[:, :TOGETHER]
        varies = variances > 1e-9 * variances[0]  # few rows have few directions
        directions = _same_sign(vectors[:, varies]) / variances[varies].sqrt()
        return cls(columns, mean.float(), directions.float())

    def transform(self, tokens: Tensor) -> Tensor:
        """(n, D, d) → (n, p)"""
        return (self.columns.transform(tokens) - self.mean) @ self.directions


def components_of(columns: int) -> int:
    """k, of one of so many columns."""
    return min(MOST, max(FEWEST, NUMBERS // columns))


def _same_sign(directions: Tensor) -> Tensor:
    """An eigenvector's sign is open: its largest entry is positive here."""
    largest = directions.gather(-2, directions.abs().argmax(-2, keepdim=True))
    return directions * largest.sign()


def _blocks(tokens: Tensor, rows: Tensor) -> Iterator[Tensor]:
    for block in rows.split(BLOCK):
        yield tokens[block.to(tokens.device)].to("cpu", torch.float32)
