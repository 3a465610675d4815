"""Layers around a transformer: tokens of features, Gaussian heads, a head per feature, pooling.

Features to tokens (Eq. context-tokenization), one token per feature:

    numeric      W_num · x + b_j + e_type + e_pos_j      W_num shared by all numeric features
    categorical  Embed_j(x) + e_type + e_pos_j
    missing      MISSING + e_pos_j

Columns have no order, so "position" is a learned vector per feature. Features are numbered numeric
first, then categorical. That is the paper's tokenizer; :class:`PiecewiseTokenizer` encodes numbers
piecewise-linearly instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from varjepa.nn.transformer import attend
from varjepa.tables.scaling import Bins
from varjepa.variational.gaussian import DiagonalGaussian, at_least_float32


@dataclass(frozen=True, slots=True)
class TableShape:
    """What the networks need to know of a table: numeric features come first."""

    numeric: int
    """number of numeric features"""
    levels: tuple[int, ...] = ()
    """states of each categorical feature, MISSING included"""
    bins: tuple[Bins, ...] = ()
    """of each numeric feature; () where numbers are modelled as Gaussians"""

    @property
    def features(self) -> int:
        """D_feat"""
        return self.numeric + len(self.levels)


_INIT_STD = 0.02
_NUMERIC, _CATEGORICAL = 0, 1


class FeatureTokenizer(nn.Module):
    """Tokens of complete rows.

    All categorical features share one table of vectors, feature j's levels starting at an offset:
    one lookup instead of one per feature.
    """

    offsets: Tensor

    def __init__(self, numeric: int, levels: Sequence[int], width: int) -> None:
        """``levels[j]`` counts the states of categorical feature j, MISSING included."""
        super().__init__()
        features = numeric + len(levels)
        self.numeric = numeric
        self.weight = nn.Parameter(torch.randn(width) * _INIT_STD)
        self.bias = nn.Parameter(torch.randn(numeric, width) * _INIT_STD)
        self.embedding = nn.Parameter(torch.randn(max(1, sum(levels)), width) * _INIT_STD)
        self.kind = nn.Parameter(torch.randn(2, width) * _INIT_STD)
        self.position = nn.Parameter(torch.randn(features, width) * _INIT_STD)
        self.missing = nn.Parameter(torch.randn(width) * _INIT_STD)
        starts = torch.tensor([0, *levels], dtype=torch.long).cumsum(0)[: len(levels)]
        self.register_buffer("offsets", starts, persistent=False)

    def forward(self, x_num: Tensor, x_cat: Tensor, observed: Tensor | None) -> Tensor:
        """Shape: ``x_num (B, F_num)``, ``x_cat (B, F_cat)``, ``observed (B, F)`` → ``(B, F, d)``.

        ``observed`` None says that no cell is missing.
        """
        numeric = x_num.unsqueeze(-1) * self.weight + (self.bias + self.kind[_NUMERIC])
        categorical = (
            nn.functional.embedding(x_cat + self.offsets, self.embedding) + self.kind[_CATEGORICAL]
        )
        tokens = torch.cat([numeric, categorical], dim=1)  # (B, F, d)
        if observed is not None:
            tokens = torch.where(observed.unsqueeze(-1), tokens, self.missing)
        return tokens + self.position


class PiecewiseTokenizer(nn.Module):
    """Tokens of complete rows; a number's token is piecewise linear in it.

    Piece t of feature j runs between two knots of its bins, and is filled from 0 to 1 by the value:

        numeric      Σ_t piece_jt(x) · w_jt + clamp(x) · v_j + e_pos_j
        categorical  Embed_j(x) + e_pos_j
        missing      MISSING_j

    So an outlier takes nothing from the resolution of the other values, and a number with a few
    distinct values is as free as a category.
    """

    offsets: Tensor
    start: Tensor  # (F_num, P)
    per_unit: Tensor  # (F_num, P), 0 for padding

    def __init__(self, shape: TableShape, width: int, std: float) -> None:
        super().__init__()
        numeric, levels = shape.numeric, shape.levels
        knots = [torch.tensor(bins.knots, dtype=torch.float64) for bins in shape.bins]
        if len(knots) != numeric:
            raise ValueError(f"{numeric} numeric features need as many bins, not {len(knots)}")
        pieces = max([1, *(len(k) - 1 for k in knots)])
        start, per_unit = torch.zeros(numeric, pieces), torch.zeros(numeric, pieces)
        for j, k in enumerate(knots):
            count = max(0, len(k) - 1)
            start[j, :count] = k[:count].float()
            per_unit[j, :count] = (1.0 / k.diff().clamp_min(MIN_PIECE)).float()
        self.weight = nn.Parameter(torch.randn(numeric, pieces, width) * std * _PIECE_SCALE)
        self.slope = nn.Parameter(torch.randn(numeric, width) * std * _SLOPE_SCALE)
        self.embedding = nn.Parameter(torch.randn(max(1, sum(levels)), width) * std)
        self.position = nn.Parameter(torch.randn(shape.features, width) * std)
        self.missing = nn.Parameter(torch.randn(shape.features, width) * std)
        starts = torch.tensor([0, *levels], dtype=torch.long).cumsum(0)[: len(levels)]
        self.register_buffer("offsets", starts, persistent=False)
        self.register_buffer("start", start, persistent=False)
        self.register_buffer("per_unit", per_unit, persistent=False)

    def forward(self, x_num: Tensor, x_cat: Tensor, observed: Tensor | None) -> Tensor:
        """As :class:`FeatureTokenizer`'s."""
        filled = ((x_num.unsqueeze(-1) - self.start) * self.per_unit).clamp(0.0, 1.0)  # (B, F, P)
        numeric = torch.bmm(filled.transpose(0, 1), self.weight).transpose(0, 1)
        numeric = numeric + x_num.clamp(-FAR, FAR).unsqueeze(-1) * self.slope
        categorical = nn.functional.embedding(x_cat + self.offsets, self.embedding)
        tokens = torch.cat([numeric, categorical], dim=1) + self.position  # (B, F, d)
        if observed is not None:
            tokens = torch.where(observed.unsqueeze(-1), tokens, self.missing)
        return tokens


MIN_PIECE = 1e-6
"""Shortest piece between two knots: its inverse stays a number that float32 holds."""

FAR = 5.0
"""Standard deviations beyond which a number's linear part does not grow."""

_PIECE_SCALE = 8**-0.5
_SLOPE_SCALE = 0.5

SMALL = 1024
"""Entries, padding included, up to which categorical features share one group."""


class GaussianHead(nn.Module):
    """One linear map to mean and log-variance of a diagonal Gaussian.

    Shape: ``(..., inputs)`` → a Gaussian of ``(..., d)``.
    """

    def __init__(self, inputs: int, d: int, log_var: float = 0.0) -> None:
        """``log_var``: about that of every dimension before training; 0: torch's own start."""
        super().__init__()
        self.linear = nn.Linear(inputs, 2 * d)
        if log_var:
            with torch.no_grad():
                self.linear.weight[d:] *= 0.1
                self.linear.bias[d:] = log_var

    def forward(self, value: Tensor) -> DiagonalGaussian:
        return DiagonalGaussian.from_head(self.linear(value))


class FeatureHeads(nn.Module):
    """One linear head per feature, computed together.

    Numeric heads are one row-wise product. Categorical heads are grouped by number of levels, each
    group padded to its largest member, so that a table of many small columns and one huge one is
    neither a loop nor mostly padding.
    """

    def __init__(
        self, numeric: int, levels: Sequence[int], d: int, std: float | None = None
    ) -> None:
        """``std`` of the weights before training; None: 1/√d."""
        super().__init__()
        std = d**-0.5 if std is None else std
        self.numeric = numeric
        self.weight = nn.Parameter(torch.randn(numeric, d) * std)
        self.bias = nn.Parameter(torch.zeros(numeric))
        self.groups: list[_LevelGroup] = [
            _LevelGroup(members, [levels[j] for j in members], numeric, d, std)
            for members in group_by_size(levels)
        ]
        self.categorical = nn.ModuleList(self.groups)

    def means(self, s: Tensor, frozen: bool = False) -> Tensor:
        """Numeric heads u_j(s_j).  # (B, F, d) → (B, F_num)

        ``frozen`` heads, here and below, learn nothing from what is read through them.
        """
        weight, bias = _parameters(frozen, self.weight, self.bias)
        return (s[:, : self.numeric] * weight).sum(-1) + bias

    def log_probs(self, s: Tensor, frozen: bool = False) -> list[tuple[Tensor, Tensor]]:
        """Per group: the features' indices (G,) and log-probabilities (B, G, L_max).

        The MISSING state and padding have probability 0.
        """
        return [(group.features, group(s, frozen)) for group in self.groups]


class _LevelGroup(nn.Module):
    """Heads of categorical features with similar numbers of levels."""

    features: Tensor  # (G,) indices among all features
    impossible: Tensor  # (G, L_max) bool

    def __init__(
        self, members: Sequence[int], levels: Sequence[int], start: int, d: int, std: float
    ) -> None:
        super().__init__()
        largest = max(levels)
        self.weight = nn.Parameter(torch.randn(len(members), d, largest) * std)
        self.bias = nn.Parameter(torch.zeros(len(members), 1, largest))
        state = torch.arange(largest)
        impossible = state >= torch.tensor(list(levels)).unsqueeze(-1)  # padding
        impossible |= (state == 0) & (torch.tensor(list(levels)).unsqueeze(-1) > 1)  # MISSING
        self.register_buffer("features", torch.tensor(list(members)) + start, persistent=False)
        self.register_buffer("impossible", impossible, persistent=False)

    def forward(self, s: Tensor, frozen: bool) -> Tensor:
        weight, bias = _parameters(frozen, self.weight, self.bias)
        # index_select: its gradient is one addition, that of indexing sorts first
        tokens = s.index_select(1, self.features).transpose(0, 1)  # (G, B, d)
        logits = torch.baddbmm(bias.to(tokens.dtype), tokens, weight).transpose(0, 1)
        return at_least_float32(logits).masked_fill(self.impossible, -torch.inf).log_softmax(-1)


class BinHeads(nn.Module):
    """A probability for every bin of every numeric feature, linear in its latent before a softmax.

    Before training it is the column's own distribution, whatever the latent.
    """

    upper: Tensor  # (F_num, T − 1), where a bin ends; inf for padding
    low: Tensor  # (F_num, T)
    high: Tensor  # (F_num, T)
    share: Tensor  # (F_num, T) of the training rows; 0 for padding

    def __init__(self, bins: Sequence[Bins], d: int) -> None:
        super().__init__()
        most = max([1, *(len(one) for one in bins)])
        upper = [_rounded_down(one.upper) for one in bins]
        self.register_buffer("upper", _padded(upper, most - 1, torch.inf), False)
        self.register_buffer("low", _padded([b.low for b in bins], most, 0.0), False)
        self.register_buffer("high", _padded([b.high for b in bins], most, 0.0), False)
        self.register_buffer("share", _padded([b.share for b in bins], most, 0.0), False)
        self.weight = nn.Parameter(torch.zeros(len(bins), d, most))
        # padding is as good as impossible, but finite: a feature without values has nothing else
        self.bias = nn.Parameter(self.share.clamp_min(1e-30).log().unsqueeze(1))

    def forward(self, s: Tensor) -> Tensor:
        """Log-probabilities.  # (B, F, d) → (B, F_num, T)"""
        tokens = s[:, : len(self.weight)].transpose(0, 1)  # (F_num, B, d)
        logits = torch.baddbmm(self.bias.to(tokens.dtype), tokens, self.weight).transpose(0, 1)
        return at_least_float32(logits).masked_fill(self.share == 0.0, -1e4).log_softmax(-1)

    def index(self, x_num: Tensor) -> Tensor:
        """The bin of every number.  # (B, F_num)"""
        return torch.searchsorted(self.upper, x_num.T.contiguous()).T


def _padded(rows: Sequence[Sequence[float]], width: int, fill: float) -> Tensor:
    """Rows of different lengths as one float32 tensor.  # (rows, width)"""
    padded = torch.full((len(rows), width), fill)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = torch.tensor(row, dtype=torch.float32)
    return padded


def _rounded_down(ends: Sequence[float]) -> list[float]:
    """Ends of bins as float32 numbers that are not above them: the next bin's values are."""
    exact = np.array(ends, dtype=np.float64)
    rounded = exact.astype(np.float32)
    below = np.nextafter(rounded, np.float32(-np.inf))
    rounded_down: list[float] = np.where(rounded > exact, below, rounded).tolist()
    return rounded_down


def _parameters(frozen: bool, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return (weight.detach(), bias.detach()) if frozen else (weight, bias)


def group_by_size(levels: Sequence[int]) -> list[list[int]]:
    """Split features into groups, in feature order each, that padding does not inflate.

    A group's largest member has at most twice the levels of its smallest, unless the whole group is
    small: there, fewer groups are worth more than less padding.
    """
    groups: list[list[int]] = []
    for j in sorted(range(len(levels)), key=lambda j: levels[j]):
        if groups and (
            levels[j] <= 2 * levels[groups[-1][0]] or levels[j] * (len(groups[-1]) + 1) <= SMALL
        ):
            groups[-1].append(j)
        else:
            groups.append([j])
    return [sorted(group) for group in groups]


class AttentionPooling(nn.Module):
    """Learned queries attend to the tokens: any number of them, in any order, to a fixed number.

    Shape: ``tokens (B, S, width)``, ``valid (B, S)`` → ``(B, pooled, width)``.
    """

    def __init__(self, width: int, pooled: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        self.heads = heads
        self.queries = nn.Parameter(torch.randn(pooled, width) * width**-0.5)
        self.project_in = nn.Linear(width, 2 * width)
        self.project_out = nn.Linear(width, width)

    def forward(self, tokens: Tensor, valid: Tensor | None) -> Tensor:
        rows, length, width = tokens.shape
        kv = self.project_in(tokens).view(rows, length, 2, self.heads, width // self.heads)
        k, v = kv.permute(2, 0, 3, 1, 4)  # (B, H, S, d_head) each
        q = self.queries.view(1, -1, self.heads, width // self.heads).transpose(1, 2)
        mixed = attend(q.expand(rows, -1, -1, -1), k, v, valid)  # (B, H, pooled, d_head)
        return self.project_out(mixed.transpose(1, 2).reshape(rows, len(self.queries), width))


def mean_over(cells: Tensor, valid: Tensor | None) -> Tensor:
    """Mean over all axes but the first, of the valid cells; 0 where a row has none.  # (B,)"""
    cells = cells.flatten(1)
    if valid is None:
        return cells.mean(-1) if cells.shape[1] else cells.new_zeros(len(cells))
    valid = valid.flatten(1)
    # where, not a product: what stands in an invalid cell may be anything, even inf
    total = torch.where(valid, cells, 0.0).sum(-1)
    return total / valid.sum(-1).clamp_min(1)
