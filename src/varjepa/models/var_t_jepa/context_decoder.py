"""(V) Context decoder."""

from __future__ import annotations

from torch import Tensor

from varjepa.models.var_t_jepa.decoder import Decoded, Decoder


class ContextDecoder(Decoder):
    """p(x | s_x), with noise σ_x²."""

    def decode_context(self, s_x: Tensor, context: Tensor, features: int) -> Decoded:
        """Decode latents that stand at the context's features.

        Latents are laid out on a grid of all features first, so that every head is computed in one
        batched product; cells outside the context hold zeros and are ignored by the caller.

        Shape: ``s_x (B, M_ctx, d)``, ``context (B, M_ctx)``.
        """
        grid = s_x.new_zeros((len(s_x), features, s_x.shape[-1]))
        index = context.unsqueeze(-1).expand(-1, -1, s_x.shape[-1])
        decoded: Decoded = self(grid.scatter(1, index, s_x))
        return decoded
