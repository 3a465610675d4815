"""Networks that others wrote, R of them as one through ``torch.func``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Self

from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from varjepa.downstream.batches import Batch
from varjepa.downstream.noise import DropoutNoise, NoisyDropout, replace_dropout
from varjepa.randomness import seeded_weights


class Vmapped(nn.Module):
    """One network per seed; parameters and buffers carry a leading axis R.

    ``build`` makes an ordinary network that maps (numeric, codes, tokens) of one run to
    ``(B, outputs)``. Its initial weights depend on the seed alone, and its dropout takes the
    numbers it is given, so a network is the same whoever else is in the stack.
    """

    def __init__(self, seeds: Sequence[int], build: Callable[[], nn.Module]) -> None:
        super().__init__()
        networks = []
        for seed in seeds:
            with seeded_weights(seed):
                networks.append(replace_dropout(build()))
        parameters, buffers = stack_module_state(networks)
        self.names = list(parameters)
        self.stacked = nn.ParameterList(parameters.values())
        self.buffer_names = list(buffers)
        for name, value in buffers.items():
            self.register_buffer(_flat(name), value)
        # only its structure is used; in a tuple, so that its parameters are not counted as ours
        self._skeleton = (deepcopy(networks[0]).to("meta"),)
        self._dropouts = [
            module for module in self._skeleton[0].modules() if isinstance(module, NoisyDropout)
        ]

    def train(self, mode: bool = True) -> Self:
        self._skeleton[0].train(mode)
        return super().train(mode)

    def forward(self, batch: Batch, noise: DropoutNoise | None) -> Tensor:
        parameters = dict(zip(self.names, self.stacked, strict=True))
        buffers = {name: self.get_buffer(_flat(name)) for name in self.buffer_names}
        uniform = None if noise is None else noise.uniform

        def single(
            parameters: dict[str, Tensor],
            buffers: dict[str, Tensor],
            numeric: Tensor,
            codes: Tensor,
            tokens: Tensor | None,
            uniform: Tensor | None,
        ) -> Tensor:
            own = None if noise is None else DropoutNoise(uniform)
            for dropout in self._dropouts:
                dropout.noise = own
            result = functional_call(
                self._skeleton[0], (parameters, buffers), (numeric, codes, tokens)
            )
            if noise is not None and own is not None:
                noise.used += own.used
            return result

        axes = (0, 0, 0, 0, None if batch.tokens is None else 0, None if uniform is None else 0)
        stacked: Callable[..., Tensor] = vmap(single, in_dims=axes)
        return stacked(parameters, buffers, batch.numeric, batch.codes, batch.tokens, uniform)


def _flat(name: str) -> str:
    return name.replace(".", "__")
