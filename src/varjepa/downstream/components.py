"""Principal components of embeddings: of each column's tokens, or of all columns together.

A column's d numbers lie near a few directions. Trees that are given these are nearly as right as
with all D · d numbers, and grow several times faster (results/tree-components.json). Where columns
are many and alike, as pixels are, a few directions of all of them together serve better
(results/adapters-principal.json).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from varjepa.downstream.inputs import token_blocks

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
