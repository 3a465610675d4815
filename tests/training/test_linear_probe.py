"""Claims about the online probe.

1. It is scikit-learn's logistic regression with the same penalty, to the third digit of a logit.
2. Scale, shift and constant features do not matter.
3. It learns from at most so many rows, the same ones at every validation, and says NaN of
   embeddings that are not finite.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from tests.training.test_loop import table
from varjepa.tables.codec import EncodedTable
from varjepa.training.loop import FilteredProbe, LinearProbeSettings, fit_linear_probe


def some_classes(rows: int = 400, features: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(rows, features, generator=g)
    noise = torch.randn(rows, 3, generator=g)
    return x, (x[:, :3] + noise).argmax(-1)


def test_it_is_logistic_regression() -> None:
    x, y = some_classes()
    x = (x - x.mean(0)) / x.std(0, unbiased=False)
    settings = LinearProbeSettings(iterations=200, weight_decay=1e-2)
    ours = fit_linear_probe(x.double(), y, 3, settings)
    theirs = LogisticRegression(C=1 / (2 * 1e-2 * len(x)), tol=1e-10, max_iter=1000).fit(x, y)
    expected = theirs.decision_function(x)
    found = ours(x.double())
    found = found - found.mean(1, keepdim=True)  # a softmax leaves the common part open
    expected = expected - expected.mean(1, keepdims=True)
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-3)


def test_scale_shift_and_constants_do_not_matter() -> None:
    x, y = some_classes()
    plain = fit_linear_probe(x, y, 3, LinearProbeSettings())(x)
    other = torch.cat([x * 50 - 7, torch.full((len(x), 1), 3.0)], dim=1)
    moved = fit_linear_probe(other, y, 3, LinearProbeSettings())(other)
    torch.testing.assert_close(moved, plain, rtol=1e-2, atol=1e-2)


def test_rows_are_few_and_the_same_and_nan_is_said() -> None:
    rows, seen = table(300), []

    class Recorder:
        broken = False
        model = None

        def embed(self, part: EncodedTable) -> Any:
            seen.append(len(part))
            mean = part.num.unsqueeze(-1).expand(-1, -1, 2)
            return mean * (math.nan if self.broken else 1)

    labels = (rows.num[:, 0] > rows.num[:, 0].median()).long()
    probe = FilteredProbe(rows, labels, rows, labels, 2, LinearProbeSettings(rows=100), 0, 0.0)
    model: Any = Recorder()
    first = probe.score(model)
    assert first > 0.9
    assert probe.score(model) == first
    assert seen == [100, 300, 100, 300]
    model.broken = True
    assert math.isnan(probe.score(model))
    with pytest.raises(ValueError, match="without uncertainty"):
        replace(probe, discard=0.2).score(model)
