"""The table of predictors: what each takes, how it is built and how it is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import nn

from varjepa.downstream.autoint import AutoInt
from varjepa.downstream.batches import InputShape
from varjepa.downstream.dcn_v2 import DCNv2
from varjepa.downstream.encoding import RawForm
from varjepa.downstream.ft_transformer import build_ft_transformer
from varjepa.downstream.linear_probe import LinearProbe
from varjepa.downstream.mlp import MLP
from varjepa.downstream.resnet import build_resnet
from varjepa.errors import InputError


class Body(Protocol):
    """Builds the networks of all seeds; they map a Batch and DropoutNoise to (R, B, outputs)."""

    def __call__(self, seeds: Sequence[int], shape: InputShape, outputs: int) -> nn.Module: ...


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Common to the neural predictors (Appendix D.6.4)."""

    epochs: int = 50
    """passes over the training rows, at most"""
    batch: int = 128
    """rows per step"""
    learning_rate: float = 1e-3
    """AdamW"""
    weight_decay: float = 0.01
    """AdamW"""
    patience: int = 16
    """epochs without a lower validation loss after which a seed stops"""


@dataclass(frozen=True, slots=True)
class PredictorKind:
    """One row of the table."""

    name: str
    raw_form: RawForm
    """how raw columns are encoded for it"""
    body: Body | None
    """builds the networks; None for trees"""
    training: TrainingSettings = TrainingSettings()


PROBE = TrainingSettings(weight_decay=2e-5)
"""The linear probe of the appendix."""

FIGURE_PROBE = TrainingSettings(epochs=20, batch=8192, learning_rate=1e-2, weight_decay=2e-5)
"""The probe of the risk–coverage figure, on standardised embeddings."""

PREDICTORS: dict[str, PredictorKind] = {
    kind.name: kind
    for kind in (
        PredictorKind("linear_probe", "one-hot", LinearProbe, PROBE),
        PredictorKind("mlp", "one-hot", MLP),
        PredictorKind("dcn_v2", "one-hot", DCNv2),
        PredictorKind("resnet", "one-hot", build_resnet),
        PredictorKind("autoint", "codes", AutoInt),
        PredictorKind("ft_transformer", "codes", build_ft_transformer),
        PredictorKind("xgboost", "trees", None),
    )
}


def predictor_kind(name: str) -> PredictorKind:
    """The table's row, or one sentence with the names there are."""
    try:
        return PREDICTORS[name]
    except KeyError:
        raise InputError(
            f"predictor '{name}' is unknown; choose one of {', '.join(PREDICTORS)}."
        ) from None
