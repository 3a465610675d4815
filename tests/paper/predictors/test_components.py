"""Claims about the principal components of embeddings.

1. Where a column's tokens vary in no more directions than are kept, distances between rows stay.
2. The components of a column are uncorrelated, and the first varies most.
3. Rows that are not fitted on change nothing, nor do the blocks in which rows are walked through,
   nor whether tokens are to be standardised; a direction's largest entry is positive.
4. Trees learn from them; wide tables get fewer per column.
5. Those of all columns together are uncorrelated and of unit variance on the rows they are fitted
   on, no more than 64, and no more than the tokens have directions.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from paper.predictors.inputs import (
    BLOCK,
    SIZES,
    Adapter,
    InputEncoder,
    Inputs,
    PrincipalComponents,
    TokenComponents,
    Tokens,
)
from paper.predictors.training import FitOptions
from tests.paper.predictors.data import fit_seeds
from varjepa.evaluate.splits import Split

MOST, FEWEST, TOGETHER = SIZES.most, SIZES.fewest, SIZES.together


def tokens_in_a_plane(n: int, columns: int, width: int, rank: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    coordinates = torch.randn(n, columns, rank, generator=draw) * torch.tensor([3.0, 1.0][:rank])
    planes = torch.randn(columns, rank, width, generator=draw)
    return torch.einsum("ncr,crd->ncd", coordinates, planes) + 5.0


def test_distances_stay_where_all_directions_are_kept() -> None:
    tokens = tokens_in_a_plane(BLOCK + 40, 3, 24, rank=2)
    components = TokenComponents.fit(tokens, torch.arange(len(tokens)))
    values = components.transform(tokens)
    assert values.shape == (BLOCK + 40, 3 * MOST)
    before, after = (torch.cdist(x.double(), x.double()) for x in (tokens.flatten(1), values))
    torch.testing.assert_close(after, before, atol=1e-3, rtol=1e-4)


def test_components_are_uncorrelated_and_in_order() -> None:
    tokens = torch.randn(800, 2, 20, generator=torch.Generator().manual_seed(1)).cumsum(-1)
    values = TokenComponents.fit(tokens, torch.arange(800)).transform(tokens).view(800, 2, MOST)
    for column in values.unbind(1):
        covariance = torch.cov(column.double().T)
        variances = covariance.diagonal()
        assert (variances.diff() <= 0).all()
        assert (covariance - variances.diag()).abs().max() < 1e-4 * variances.max()
        torch.testing.assert_close(column.mean(0), torch.zeros(MOST), atol=1e-4, rtol=0.0)


def test_only_the_rows_that_are_named_count() -> None:
    tokens = tokens_in_a_plane(600, 2, 8, rank=2)
    few = TokenComponents.fit(tokens, torch.arange(100))
    other = tokens.clone()
    other[100:] = 1e3
    again = TokenComponents.fit(other, torch.arange(100))
    torch.testing.assert_close((again.mean, again.directions), (few.mean, few.directions))
    alone = torch.cat([few.transform(tokens[[i]]) for i in (0, 599)])
    torch.testing.assert_close(few.transform(tokens)[[0, 599]], alone)


@pytest.mark.parametrize(("columns", "kept"), [(1, MOST), (54, MOST), (784, FEWEST), (5000, 2)])
def test_wide_tables_get_fewer(columns: int, kept: int) -> None:
    assert SIZES.of_one(columns) == kept


@pytest.mark.parametrize("adapter", ["components", "principal"])
def test_they_are_of_the_tokens_as_they_are(adapter: Adapter) -> None:
    tokens = tokens_in_a_plane(200, 2, 8, rank=2)
    rows = [
        InputEncoder("one-hot", adapter).fit(inputs, np.arange(150)).transform(inputs)
        for inputs in (Inputs(tokens=Tokens(tokens, s)) for s in (False, True))
    ]
    assert rows[0].tokens is None and rows[0].numeric.shape[1] > 0
    torch.testing.assert_close(rows[0].numeric, rows[1].numeric)


def test_a_direction_has_its_sign() -> None:
    directions = TokenComponents.fit(tokens_in_a_plane(90, 3, 8, 2), torch.arange(90)).directions
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    assert (largest > 0).all()


def test_of_all_columns_together() -> None:
    draw = torch.Generator().manual_seed(2)
    tokens = torch.randn(900, 10, 12, generator=draw).cumsum(-1).half()
    values = PrincipalComponents.fit(tokens, torch.arange(700)).transform(tokens)
    assert values.shape == (900, TOGETHER)
    fitted = values[:700].double()
    torch.testing.assert_close(
        torch.cov(fitted.T, correction=0), torch.eye(TOGETHER).double(), atol=1e-3, rtol=0.0
    )
    torch.testing.assert_close(fitted.mean(0), torch.zeros(TOGETHER).double(), atol=1e-3, rtol=0.0)


@pytest.mark.parametrize("precision", [torch.float16, torch.float32])
@pytest.mark.parametrize(("rows", "kept"), [(500, 6), (4, 3)])  # 3 columns × 2; 4 rows span 3
def test_no_more_than_there_are_directions(rows: int, kept: int, precision: torch.dtype) -> None:
    tokens = tokens_in_a_plane(500, 3, 24, rank=2).to(precision)
    components = PrincipalComponents.fit(tokens, torch.arange(rows))
    assert components.transform(tokens).shape == (500, kept)
    assert components.transform(tokens).isfinite().all()


def test_constant_tokens_are_one_column_that_says_nothing() -> None:
    tokens = torch.full((50, 3, 8), 5.1, dtype=torch.float16)
    values = PrincipalComponents.fit(tokens, torch.arange(40)).transform(tokens)
    torch.testing.assert_close(values, torch.zeros(50, 1), atol=1e-4, rtol=0.0)


@pytest.mark.parametrize("adapter", ["components", "principal"])
@pytest.mark.parametrize("standardise", [False, True])
def test_trees_learn_from_them(standardise: bool, adapter: Adapter) -> None:
    pytest.importorskip("xgboost")
    tokens = tokens_in_a_plane(900, 2, 30, rank=2).half()
    sums = tokens.float().sum(-1)
    label = (sums > sums.mean(0))[:, 0].numpy().astype(np.int64)
    split = Split(np.arange(600), np.arange(600, 700), np.arange(700, 900))
    options = FitOptions(adapter=adapter)
    said = fit_seeds("xgboost", Tokens(tokens, standardise), label, split, [0], options).labels()[0]
    assert (said == label[split.test]).mean() > 0.9
