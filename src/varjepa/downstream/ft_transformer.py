"""FT-Transformer from the package ``rtdl_revisiting_models``, R networks as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from varjepa.downstream.batches import InputShape
from varjepa.downstream.optional import require
from varjepa.downstream.vmapped import Vmapped


@dataclass(frozen=True, slots=True)
class FTTransformerSettings:
    """Appendix D.6.4 says "standard", so all else is the package's default for this depth."""

    blocks: int = 3
    """transformer blocks"""


def build_ft_transformer(
    seeds: Sequence[int],
    shape: InputShape,
    outputs: int,
    settings: FTTransformerSettings = FTTransformerSettings(),  # noqa: B008 - frozen
) -> Vmapped:
    """R FT-Transformers."""
    rtdl = require("rtdl_revisiting_models", "ft_transformer")
    return Vmapped(seeds, lambda: FTTransformer(rtdl, shape, outputs, settings))


class FTTransformer(nn.Module):
    """The package's feature embeddings and backbone; embeddings from outside enter as tokens."""

    def __init__(
        self, rtdl: Any, shape: InputShape, outputs: int, settings: FTTransformerSettings
    ) -> None:
        super().__init__()
        options = rtdl.FTTransformer.get_default_kwargs(settings.blocks)
        options.pop("_is_default")
        width = options["d_block"]
        self.cls = nn.Parameter(torch.empty(1, 1, width).uniform_(-1, 1) * width**-0.5)
        self.numeric = rtdl.LinearEmbeddings(shape.numeric, width) if shape.numeric else None
        self.codes = rtdl.CategoricalEmbeddings(list(shape.levels), width) if shape.levels else None
        self.tokens: nn.Module | None = None
        if shape.tokens is not None:
            columns, token_width = shape.tokens
            self.tokens = nn.Linear(token_width, width)
            # tells columns apart, as the package's feature embeddings do with their biases
            self.bias = nn.Parameter(torch.empty(columns, width).uniform_(-1, 1) * width**-0.5)
        self.backbone: nn.Module = rtdl.FTTransformerBackbone(
            **options, d_out=outputs, n_tokens=None
        )

    def forward(self, numeric: Tensor, codes: Tensor, tokens: Tensor | None) -> Tensor:
        parts = [self.cls.expand(len(numeric), -1, -1)]
        if self.numeric is not None:
            parts.append(self.numeric(numeric))
        if self.codes is not None:
            parts.append(self.codes(codes))
        if self.tokens is not None and tokens is not None:
            parts.append(self.tokens(tokens) + self.bias)
        return self.backbone(torch.cat(parts, 1))
