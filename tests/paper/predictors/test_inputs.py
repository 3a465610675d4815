"""Claims: raw columns are encoded from training rows alone, with missing cells, unseen and rare
levels; adapters have the promised shapes and pass gradients; stored embeddings are never converted
as a whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from paper.predictors.inputs import (
    DEFAULT_ADAPTER,
    MAX_LEVELS,
    Batch,
    InputEncoder,
    Inputs,
    InputShape,
    RawEncoder,
    RawFeatures,
    Tokens,
)
from paper.predictors.networks import FrontEnd
from paper.predictors.training import PREDICTORS, FitOptions, SeedStack, TrainingSettings
from tests.paper.predictors.data import ADAPTERS, fit_seeds, light, pace, some_tokens, split_of
from varjepa.errors import InputError
from varjepa.tables import EncodedTable

RAW = RawFeatures(
    np.array([[1.0, np.nan, 5.0], [3.0, np.nan, 5.0], [np.inf, np.nan, 5.0], [9.0, 2.0, 7.0]]),
    np.array([[1, 2], [2, 2], [0, 2], [3, 1]]),
)
TRAIN = np.array([0, 1, 2])


def test_one_hot_form() -> None:
    matrix = RawEncoder("one-hot").fit(RAW.rows(TRAIN)).transform(RAW)
    assert matrix.codes.shape == (4, 0)
    # three numbers; levels 1, 2 and missing of the first column; one level of the second
    assert matrix.numeric.shape == (4, 7)
    np.testing.assert_allclose(matrix.numeric[:3, 0], [-np.sqrt(1.5), np.sqrt(1.5), 0.0], rtol=1e-6)
    np.testing.assert_array_equal(matrix.numeric[:3, 1:3], 0.0)  # all missing; constant
    np.testing.assert_array_equal(matrix.numeric[:3, 3:6].sum(1), 1.0)
    np.testing.assert_array_equal(matrix.numeric[3, 3:], 0.0)  # levels never seen in training


def test_codes_form() -> None:
    encoder = RawEncoder("codes").fit(RAW.rows(TRAIN))
    matrix = encoder.transform(RAW)
    assert encoder.levels == (4, 2)
    np.testing.assert_array_equal(matrix.codes, [[2, 1], [3, 1], [1, 1], [0, 0]])


def test_min_max_form() -> None:
    matrix = RawEncoder("min-max").fit(RAW.rows(TRAIN)).transform(RAW)
    np.testing.assert_allclose(matrix.numeric[:3, 0], [0.0, 1.0, 0.5])


def test_trees_see_missing_numbers() -> None:
    matrix = RawEncoder("trees").fit(RAW.rows(TRAIN)).transform(RAW)
    assert np.isnan(matrix.numeric[2, 0])
    assert matrix.numeric[1, 0] == 3.0


@pytest.mark.parametrize("form", ["one-hot", "codes"])
def test_rare_levels_share_one(form: Any) -> None:
    levels = np.concatenate([np.arange(1, 1001), np.arange(1, 101)]).reshape(-1, 1)
    raw = RawFeatures(np.empty((1100, 0)), levels)
    encoder = RawEncoder(form).fit(raw)
    matrix = encoder.transform(raw)
    if form == "one-hot":
        assert matrix.numeric.shape[1] == MAX_LEVELS
    else:
        assert encoder.levels == (MAX_LEVELS + 1,)
        assert matrix.codes.max() == MAX_LEVELS


def test_from_an_encoded_table() -> None:
    table = EncodedTable(
        torch.tensor([[0.5], [0.0]]),
        torch.tensor([[2], [0]]),
        torch.tensor([[True, True], [False, False]]),
    )
    raw = RawFeatures.from_table(table)
    np.testing.assert_array_equal(raw.numeric, [[0.5], [np.nan]])
    np.testing.assert_array_equal(raw.categorical, [[2], [0]])
    assert table.num[1, 0] == 0.0  # the table itself is left alone


@pytest.mark.parametrize("name", sorted(PREDICTORS))
def test_missing_cells_unseen_levels_and_both_parts(name: str) -> None:
    generator = np.random.default_rng(0)
    tokens, _ = some_tokens(160)
    y = np.arange(160) % 2
    numeric = np.where(generator.random((160, 2)) < 0.2, np.nan, generator.normal(size=(160, 2)))
    categorical = 1 + y[:, None] * np.array([1, 0]) + generator.integers(0, 2, (160, 2)) * [0, 3]
    raw = RawFeatures(numeric, np.where(generator.random((160, 2)) < 0.1, 0, categorical))
    split = split_of(160)
    raw.categorical[split.test[0]] = 99
    training = TrainingSettings(epochs=12, batch=16, learning_rate=pace(name))
    options = FitOptions(training=training)
    result = fit_seeds(light(name), Inputs(raw, tokens), y, split, [0], options)
    assert np.isfinite(result.values).all()
    assert (result.labels()[0] == y[split.test]).mean() > 0.75
    only_categories = RawFeatures(np.empty((160, 0)), raw.categorical)
    result = fit_seeds(light(name), only_categories, y, split, [0], options)
    assert (result.labels()[0] == y[split.test]).mean() > 0.75


@pytest.mark.parametrize(
    ("adapter", "numeric", "tokens"),
    [
        ("linear", 2 + 3, None),
        ("column", 2 + 3, None),
        ("flat", 2 + 12, None),
        ("tokens", 2, (3, 4)),
        ("mean", 2 + 4, None),
    ],
)
def test_adapter_shapes(adapter: Any, numeric: int, tokens: tuple[int, int] | None) -> None:
    embedded, _ = some_tokens(8)
    raw = RawFeatures.from_numeric(np.arange(16.0).reshape(8, 2))
    inputs = Inputs(raw, embedded)
    encoder = InputEncoder("one-hot", adapter).fit(inputs, np.arange(8))
    rows = encoder.transform(inputs)
    front = FrontEnd([0, 1], adapter, encoder.shape(rows))
    assert front.shape == InputShape(numeric, (), tokens)
    batch = front(rows.take(torch.tensor([[0, 1, 2], [5, 6, 7]])))
    assert batch.numeric.shape == (2, 3, numeric)
    assert (batch.tokens is None) == (tokens is None)
    wide = embedded.values.float()
    if adapter == "mean":
        torch.testing.assert_close(batch.numeric[1, :, 2:], wide[5:].mean(1))
    if adapter == "flat":
        torch.testing.assert_close(batch.numeric[1, :, 2:], wide[5:].flatten(1))
    if adapter == "column":  # a column's number is of its own token alone
        other = wide.clone()
        other[:, 1] += 1.0
        changed = encoder.transform(Inputs(raw, Tokens(other))).take(torch.tensor([[0], [5]]))
        moved = (front(changed).numeric[1, 0] - batch.numeric[1, 0]).abs() > 1e-6
        assert moved.tolist() == [False] * 3 + [True, False]


@pytest.mark.parametrize(
    ("name", "adapter"),
    [(n, a) for n in sorted(PREDICTORS) for a in ADAPTERS[n] if PREDICTORS[n].body and a != "mean"],
)
def test_gradients_reach_everything_and_stay_in_their_seed(name: str, adapter: Any) -> None:
    body = PREDICTORS[name].body
    assert body is not None
    shape = InputShape(2, (3, 4) if PREDICTORS[name].raw_form == "codes" else (), (3, 4))
    network = SeedStack([0, 1], body, adapter, shape, 2)
    g = torch.Generator().manual_seed(0)
    tokens = torch.randn(2, 16, 3, 4, generator=g, requires_grad=True)
    codes = torch.arange(16).view(1, -1, 1).expand(2, -1, len(shape.levels)) % 3
    outputs = network(Batch(torch.randn(2, 16, 2, generator=g), codes, tokens), None)
    assert outputs.shape == (2, 16, 2)
    (outputs[1] * torch.randn(16, 2, generator=g)).sum().backward()
    assert tokens.grad is not None
    assert tokens.grad[0].abs().max() == 0.0
    assert tokens.grad[1].abs().amax((0, 2)).min() > 0.0  # of every column
    for parameter in network.parameters():
        assert parameter.shape[0] == 2
        assert parameter.grad is not None
        assert parameter.grad[0].abs().max() == 0.0
    for buffer in network.buffers():
        assert buffer.shape[0] == 2


@pytest.mark.parametrize(
    ("name", "adapter"), [(n, a) for n in sorted(ADAPTERS) for a in ADAPTERS[n] if a != "mean"]
)
def test_embeddings_are_learned_from(name: str, adapter: str) -> None:
    tokens, y = some_tokens(400)
    split = split_of(400)
    training = TrainingSettings(epochs=8, batch=16, learning_rate=pace(name))
    options = FitOptions(adapter=adapter, training=training)
    result = fit_seeds(light(name), tokens, y, split, [0], options)
    assert (result.labels()[0] == y[split.test]).mean() > 0.85


def test_every_predictor_has_a_default_adapter() -> None:
    assert DEFAULT_ADAPTER.keys() == PREDICTORS.keys()


def test_cross_layers_refuse_what_they_cannot_hold() -> None:
    tokens = Tokens(torch.randn(20, 200, 50))
    with pytest.raises(InputError, match="10000 × 10000 weights"):
        fit_seeds(
            "dcn_v2", tokens, np.arange(20) % 2, split_of(20), [0], FitOptions(adapter="flat")
        )


def test_standardised_tokens_have_the_training_rows_moments() -> None:
    values = torch.randn(1300, 2, 3, dtype=torch.float64) * 5.0 + 7.0
    values[:, 0, 0] = 3.0  # constant
    tokens = Tokens(values, standardise=True)
    train = np.arange(0, 1300, 2)
    rows = (
        InputEncoder("one-hot", "flat")
        .fit(Inputs(tokens=tokens), train)
        .transform(Inputs(tokens=tokens))
    )
    here = rows.take(torch.from_numpy(train)[None]).tokens
    assert here is not None
    torch.testing.assert_close(here[0].mean(0), torch.zeros(2, 3), atol=1e-5, rtol=0.0)
    expected = torch.ones(2, 3)
    expected[0, 0] = 0.0
    torch.testing.assert_close(here[0].std(0, correction=0), expected, atol=1e-4, rtol=0.0)


@pytest.mark.parametrize("name", ["mlp", "autoint", "xgboost"])
def test_only_training_rows_shape_the_encoding(name: str) -> None:
    split = split_of(80)
    stored, y = some_tokens(80)
    numeric = np.random.default_rng(1).normal(size=(80, 2))
    options = FitOptions(training=TrainingSettings(epochs=1))
    results = []
    for value in (0.0, 1e4):
        numeric[split.test[-1]] = value
        stored.values[split.test[-1]] = value
        raw = RawFeatures(numeric.copy(), np.full((80, 1), 3))
        raw.categorical[split.test[-1]] = 1 + int(value)
        inputs = Inputs(raw, Tokens(stored.values.clone(), standardise=True))
        results.append(fit_seeds(light(name), inputs, y, split, [0], options).values)
    np.testing.assert_array_equal(results[0][:, :-1], results[1][:, :-1])
    assert np.isfinite(results[1]).all()


class LargestFloat32(TorchDispatchMode):
    """Notes the most elements any float32 result has."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else [result]:
            if isinstance(value, torch.Tensor) and value.dtype in (torch.float32, torch.float64):
                self.elements = max(self.elements, value.numel())
        return result


@pytest.mark.parametrize(
    ("name", "adapter"),
    [("mlp", "flat"), ("mlp", "mean"), ("dcn_v2", "linear"), ("xgboost", "flat")],
)
def test_stored_embeddings_are_never_converted_as_a_whole(name: str, adapter: str) -> None:
    stored, y = some_tokens(6000, columns=10, width=32)
    tokens = Tokens(stored.values, standardise=True)
    options = FitOptions(adapter=adapter, training=TrainingSettings(epochs=1))
    with LargestFloat32() as seen:
        fit_seeds(name, tokens, y, split_of(6000), [0, 1], options)
    assert seen.elements <= stored.values.numel() // 5
