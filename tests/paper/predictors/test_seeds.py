"""Claims: a seed's result does not depend on the seeds next to it, dropout included; it is the same
in every run; different seeds differ; networks from a package behave in the stack as they do alone;
early stopping keeps each seed's best epoch.
"""

from __future__ import annotations

import numpy as np
import pytest
import rtdl_revisiting_models
import torch

from paper.predictors.inputs import Batch, EncodedRows, Inputs, InputShape, RawFeatures
from paper.predictors.networks import MLP, ResNet, build_resnet, draw_noise, dropout_streams
from paper.predictors.training import (
    PREDICTORS,
    FitOptions,
    Labelled,
    LabelledInputs,
    SeedStack,
    Stopping,
    TrainingSettings,
    dropout_numbers,
    fit_models,
    kept_per_row,
    mean_loss,
    predict_stack,
    train_stack,
)
from tests.paper.predictors.data import (
    NETWORKS,
    fit_seeds,
    some_tokens,
    split_of,
    two_gaussians,
)
from varjepa.randomness import seeded_weights

CLASSES = np.array([0, 1])
BRIEF = FitOptions(training=TrainingSettings(epochs=2, batch=32), at_once=3)


def labelled(rows: int, start: int = 0) -> Labelled:
    x, y = two_gaussians(rows + start)
    numeric = torch.from_numpy(x).float()
    codes = torch.empty(len(x), 0, dtype=torch.long)
    index = torch.arange(start, rows + start)
    return Labelled(EncodedRows(numeric, codes, None, None), index, torch.from_numpy(y)[start:])


def stack_of(seeds: list[int], name: str = "mlp") -> SeedStack:
    body = PREDICTORS[name].body
    assert body is not None
    return SeedStack(seeds, body, "flat", InputShape(4), 2)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_seed_does_not_depend_on_its_neighbours(name: str) -> None:
    x, y = two_gaussians(100)
    split = split_of(100)
    together = fit_seeds(name, x, y, split, [4, 7, 9], BRIEF).values
    alone = fit_seeds(name, x, y, split, [7], BRIEF).values
    # sums of float32 numbers round with the shape of the product; batch statistics amplify that
    np.testing.assert_allclose(together[1:2], alone, atol=1e-4 if name == "resnet" else 1e-5)
    assert np.abs(together[0] - together[1]).max() > 1e-3
    again = fit_seeds(name, x, y, split, [4, 7, 9], BRIEF).values
    np.testing.assert_array_equal(together, again)


def test_groups_of_seeds_give_what_one_stack_gives() -> None:
    tokens, y = some_tokens(120)
    split = split_of(120)
    seeds = [0, 1, 2, 3, 4]
    training = TrainingSettings(epochs=5, batch=32)
    grouped = fit_seeds("mlp", tokens, y, split, seeds, FitOptions(training=training, at_once=2))
    whole = fit_seeds("mlp", tokens, y, split, seeds, FitOptions(training=training, at_once=5))
    np.testing.assert_allclose(grouped.values, whole.values, atol=1e-5)
    np.testing.assert_array_equal(grouped.best_epoch, whole.best_epoch)


def test_a_packaged_network_in_the_stack_is_the_network_alone() -> None:
    settings = {"blocks": 2, "width": 8, "hidden": 16, "dropout": 0.0}
    shape = InputShape(4)
    stack = build_resnet([3, 5], shape, 2, **settings).train()
    x = torch.randn(2, 16, 4, generator=torch.Generator().manual_seed(0))
    outputs = stack(Batch(x, torch.empty(2, 16, 0), None), None)
    outputs.square().sum().backward()
    for run, seed in enumerate([3, 5]):
        with seeded_weights(seed):
            alone = ResNet(rtdl_revisiting_models, shape, 2, **settings).train()
        expected = alone(x[run], torch.empty(16, 0), None)
        expected.square().sum().backward()
        torch.testing.assert_close(outputs[run], expected)
        for name, value in zip(stack.names, stack.stacked, strict=True):
            torch.testing.assert_close(value.grad[run], alone.get_parameter(name).grad)
        for name in stack.buffer_names:  # batch statistics moved alike
            stacked = stack.get_buffer(name.replace(".", "__"))[run]
            torch.testing.assert_close(stacked, alone.get_buffer(name))


def test_dropout_drops_its_share_and_keeps_the_mean() -> None:
    noise = draw_noise(dropout_streams([0, 1], "cpu"), 20_000)
    dropped = noise.drop(torch.ones(2, 100, 200), 0.1)
    assert (dropped == 0).float().mean() == pytest.approx(0.1, abs=0.005)
    assert dropped.mean() == pytest.approx(1.0, abs=0.01)
    assert not torch.equal(dropped[0], dropped[1])
    assert noise.used == 20_000


@pytest.mark.parametrize(("name", "numbers"), [("linear_probe", 0), ("mlp", 256), ("dcn_v2", 256)])
def test_counted_dropout_numbers(name: str, numbers: int) -> None:
    assert dropout_numbers(stack_of([0, 1], name), labelled(4)) == numbers


def test_monte_carlo_dropout_varies_around_the_prediction() -> None:
    x, y = two_gaussians(300)
    inputs = Inputs(raw=RawFeatures.from_numeric(x))
    train = LabelledInputs(inputs, np.arange(200), y[:200])
    options = FitOptions(training=TrainingSettings(epochs=5))
    rest = np.arange(200, 300)
    for name in ("mlp", "resnet"):
        models = fit_models(name, train, None, CLASSES, [0, 1], options)
        passes = models.predict_with_dropout(inputs, 20, rest)
        assert passes.shape == (20, 2, 100, 2)
        assert passes.std(0).max() > 0.01
        assert np.abs(passes.mean(0) - models.predict(inputs, rest)).mean() < 0.03
        np.testing.assert_array_equal(passes, models.predict_with_dropout(inputs, 20, rest))


def test_early_stopping_keeps_the_best_epoch() -> None:
    train, validation = labelled(100), labelled(60, start=100)
    swapped = Labelled(validation.rows, validation.index, 1 - validation.targets)
    settings = TrainingSettings(epochs=40, batch=16, learning_rate=3e-3, patience=3)
    noisy = train.targets.clone()
    noisy[::3] = 1 - noisy[::3]  # enough to overfit to
    train = Labelled(train.rows, train.index, noisy)
    network = stack_of([0, 1, 2])
    log = train_stack(network, train, validation, settings)
    for run in range(3):
        seen = torch.stack(log.losses)[: log.epochs(40)[run], run]
        assert log.best_epoch[run] == seen.argmin()
        assert log.best_loss[run] == seen.min()
        assert log.epochs(40)[run] == min(40, log.best_epoch[run] + 1 + settings.patience)
    torch.testing.assert_close(mean_loss(network, validation), log.best_loss)
    assert len(set(log.epochs(40).tolist())) > 1, "seeds should stop separately"
    # what is learned only harms: the first epoch is the best one
    log = train_stack(stack_of([0, 1]), labelled(100), swapped, settings)
    assert log.best_epoch.tolist() == [0, 0]
    assert log.epochs(40).tolist() == [4, 4]


def test_a_stopped_seed_is_frozen() -> None:
    network = stack_of([0, 1], "linear_probe")
    stopping = Stopping(network, patience=1)
    weight = network.body.output.weight
    with torch.no_grad():
        weight.fill_(1.0)
        assert not stopping.after_epoch(torch.tensor([1.0, 1.0]))
        weight.fill_(2.0)
        assert not stopping.after_epoch(torch.tensor([2.0, 0.5]))  # seed 0 stops
        weight.fill_(3.0)
        assert not stopping.after_epoch(torch.tensor([0.1, 0.4]))  # unheard
        weight.fill_(4.0)
        assert stopping.after_epoch(torch.tensor([0.1, torch.nan]))  # seed 1 stops
    stopping.restore()
    assert weight[0].unique().tolist() == [1.0]
    assert weight[1].unique().tolist() == [3.0]
    assert stopping.epochs(9).tolist() == [2, 4]


def test_one_left_over_row_is_skipped() -> None:
    train = labelled(33)
    log = train_stack(stack_of([0], "resnet"), train, None, TrainingSettings(2, 16))
    assert log.epochs(2).tolist() == [2]


def test_kept_memory_is_counted_without_the_weights() -> None:
    train = labelled(4)
    body = MLP([0], InputShape(4), 2, hidden=2_000)
    network = SeedStack([0], lambda *_: body, "flat", InputShape(4), 2)
    kept = kept_per_row(network, train.rows, train.index)
    layers = 4 * 2 * 2_000  # bytes of two hidden layers; the weights have a thousand times that
    assert layers <= kept < 5 * layers


def test_predictions_of_a_row_do_not_depend_on_the_others() -> None:
    data = labelled(40)
    network = stack_of([0, 1], "resnet")
    whole = predict_stack(network, data.rows, data.index)
    torch.testing.assert_close(whole[:, 7:8], predict_stack(network, data.rows, data.index[7:8]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_graphed_step_trains_as_the_step_does(name: str) -> None:
    x, y = two_gaussians(300)
    training = TrainingSettings(epochs=2, batch=32)
    plain, graphed = (
        fit_seeds(
            name,
            x,
            y,
            split_of(300),
            [0, 1],
            FitOptions(training=training, device="cuda", graphs=g),
        ).values
        for g in (False, True)
    )
    np.testing.assert_allclose(plain, graphed, atol=2e-3)
