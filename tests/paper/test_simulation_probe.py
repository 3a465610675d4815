"""Claims: the probe learns what is there, and only that; stacked probes do not mix."""

from __future__ import annotations

import pytest
import torch

from paper.simulation_training import ProbeSettings, fit_probe, probe_accuracy
from varjepa.randomness import generator_for


def streams(*seeds: int) -> list[torch.Generator]:
    return [generator_for(s, "probe") for s in seeds]


def test_separable_is_learned_and_noise_is_not() -> None:
    g = torch.Generator().manual_seed(0)
    features = torch.randn(2, 2000, 4, generator=g)
    separable = (features[0, :, 1] > 0).long()
    coin = (torch.rand(2000, generator=g) < 0.5).long()
    labels = torch.stack([separable, coin])
    probe = fit_probe(features, labels, 2, ProbeSettings(epochs=20), streams(1, 2))
    fresh = torch.randn(2, 2000, 4, generator=g)
    truth = torch.stack([(fresh[0, :, 1] > 0).long(), (torch.rand(2000, generator=g) < 0.5).long()])
    accuracy = probe_accuracy(probe, fresh, truth)
    assert accuracy[0] > 0.98
    assert 0.45 < accuracy[1] < 0.55


@pytest.mark.parametrize("hidden", [0, 64])
def test_only_a_hidden_layer_sees_a_parity(hidden: int) -> None:
    g = torch.Generator().manual_seed(1)
    features = torch.randn(1, 3000, 2, generator=g)
    parity = (features.prod(-1) > 0).long()
    probe = fit_probe(features, parity, 2, ProbeSettings(hidden=hidden), streams(1))
    accuracy = probe_accuracy(probe, features, parity)
    assert accuracy > 0.95 if hidden else accuracy < 0.65


def test_a_probe_does_not_depend_on_its_neighbours() -> None:
    g = torch.Generator().manual_seed(2)
    features = torch.randn(3, 300, 4, generator=g, dtype=torch.float64)
    labels = (features.sum(-1) > 0).long()
    settings = ProbeSettings(epochs=3, batch=128)
    together = fit_probe(features, labels, 2, settings, streams(1, 2, 3))(features)
    alone = fit_probe(features[1:2], labels[1:2], 2, settings, streams(2))(features[1:2])
    torch.testing.assert_close(together[1:2], alone)
