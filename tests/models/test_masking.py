"""Claims about feature masks (Appendix A.2).

1. Context and targets are disjoint, of the drawn sizes, without repeats; targets of one row differ.
2. A missing cell is never context and never target; a row keeps a target where it can.
3. Sizes are uniform over the configured range and always fit; impossible shares are refused.
4. Every feature is equally often context and target.
5. The same generator state draws the same masks.
6. With "rest" a target is everything observed that the context leaves, padded or not.
"""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from varjepa.models.masking import (
    FeatureMasks,
    MaskSettings,
    draw_mask_sizes,
    draw_masks,
    largest_mask_sizes,
    masks_from_cells,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def kept(masks: FeatureMasks, row: int) -> tuple[list[int], list[list[int]]]:
    """Valid indices of one row: the context's and each target's."""
    context = masks.context[row]
    if masks.context_valid is not None:
        context = context[masks.context_valid[row]]
    targets = [
        target if masks.target_valid is None else target[masks.target_valid[row, k]]
        for k, target in enumerate(masks.target[row])
    ]
    return context.tolist(), [target.tolist() for target in targets]


@given(st.integers(2, 12), st.integers(0, 2**31), st.booleans())
def test_masks_keep_their_promises(features: int, seed: int, missing: bool) -> None:
    g = generator(seed)
    sizes = draw_mask_sizes(features, MaskSettings(), g)
    observed = torch.rand(20, features, generator=g) > 0.4 if missing else None
    masks = draw_masks(20, features, observed, sizes, 3, g)
    for row in range(20):
        context, targets = kept(masks, row)
        available = (
            set(range(features))
            if observed is None
            else set(observed[row].nonzero().flatten().tolist())
        )
        assert set(context) <= available
        assert len(set(context)) == len(context)
        for target in targets:
            assert set(target) <= available - set(context)
            assert len(set(target)) == len(target)
            assert bool(target) == bool(available)
            assert len(target) == min(sizes[1], len(available) - len(context))
        if observed is None:
            assert len(context) == sizes[0]


@given(st.integers(2, 40), st.integers(0, 2**31))
def test_sizes_fit(features: int, seed: int) -> None:
    m_ctx, m_trg = draw_mask_sizes(features, MaskSettings((0.5, 0.8), (0.15, 0.5)), generator(seed))
    assert m_ctx >= 1
    assert m_trg >= 1
    assert m_ctx + m_trg <= features


def test_sizes_cover_the_range_evenly() -> None:
    g = generator()
    settings = MaskSettings((0.1, 0.3), (0.1, 0.6))  # Adult: contexts 1–4, targets 1–8 of 14
    drawn = Counter(draw_mask_sizes(14, settings, g) for _ in range(6400))
    assert set(drawn) == {(c, t) for c in range(1, 5) for t in range(1, 9)}
    assert max(drawn.values()) < 1.5 * min(drawn.values())


def test_one_column_is_predicted_from_nothing() -> None:
    assert draw_mask_sizes(1, MaskSettings(), generator()) == (0, 1)
    masks = draw_masks(3, 1, None, (0, 1), 2, generator())
    assert masks.context.shape == (3, 0)
    assert masks.target.tolist() == [[[0], [0]]] * 3


def test_features_are_treated_alike() -> None:
    masks = draw_masks(4000, 8, None, (3, 2), 2, generator())
    for index in (masks.context, masks.target):
        counts = torch.bincount(index.flatten(), minlength=8).float()
        assert (counts / counts.mean() - 1).abs().max() < 0.1


def test_targets_of_a_row_are_independent_draws() -> None:
    masks = draw_masks(500, 10, None, (2, 3), 2, generator())
    first, second = (masks.target[:, k].sort(-1).values for k in (0, 1))
    same = (first == second).all(-1).float().mean()
    assert 0 < same < 0.1  # 1/56 by chance: neither copies nor forbidden to coincide


def test_the_same_state_draws_the_same() -> None:
    first, again = (draw_masks(9, 7, None, (2, 3), 4, generator(5)) for _ in range(2))
    assert torch.equal(first.context, again.context)
    assert torch.equal(first.target, again.target)


def test_masks_from_cells_keep_exactly_those_cells() -> None:
    context = torch.tensor([[True, False, True], [False, False, False]])
    target = ~context
    masks = masks_from_cells(context, target)
    assert kept(masks, 0) == ([0, 2], [[1]])
    assert kept(masks, 1) == ([], [[0, 1, 2]])


@pytest.mark.parametrize(
    "wrong",
    [
        {"context_share": (0.5, 0.4)},
        {"target_share": (0.1, 1.1)},
        {"context_share": (-0.1, 0.4)},
        {"targets": 0},
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"share must be|targets must be"):
        MaskSettings(**wrong)  # type: ignore[arg-type]


def test_shares_that_never_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit into 10 features"):
        draw_mask_sizes(10, MaskSettings((0.9, 0.9), (0.5, 0.5)), generator())


# --- 6


@given(st.integers(1, 12), st.integers(0, 2**31), st.booleans(), st.booleans())
def test_the_rest_is_all_that_the_context_leaves(
    features: int, seed: int, missing: bool, padded: bool
) -> None:
    g = generator(seed)
    settings = MaskSettings(target_share="rest", targets=1)
    sizes = draw_mask_sizes(features, settings, g)
    assert sum(sizes) == features
    largest = largest_mask_sizes(features, settings)
    assert sizes[0] <= largest[0]
    assert sizes[1] <= largest[1]
    observed = torch.rand(20, features, generator=g) > 0.4 if missing else None
    bucket = largest if padded else None
    masks = draw_masks(20, features, observed, sizes, 1, g, bucket)
    for row in range(20):
        context, (target,) = kept(masks, row)
        known = torch.ones(features) if observed is None else observed[row]
        available = set(known.nonzero().flatten().tolist())
        assert not set(context) & set(target)
        assert len(target) == len(set(target))
        assert {*context, *target} == available
        assert target or not available
