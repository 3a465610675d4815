"""(VI) Target decoder."""

from __future__ import annotations

import torch
from torch import Tensor

from varjepa.models.var_t_jepa.decoder import Decoded, Decoder
from varjepa.variational.gaussian import DiagonalGaussian


class TargetDecoder(Decoder):
    """p(w | s_w), with noise σ_y²; also turns predicted latents into values."""

    def predictive_nll(self, p: DiagonalGaussian, w_num: Tensor, w_cat: Tensor) -> Tensor:
        """−log p(value) with the latent's uncertainty in it.  # (B, D, d) → (B, D)

        A numeric head is linear, so its value under s ~ N(m, V) is exactly Gaussian with variance
        u² V + σ². Categories are judged at the latent's mean.
        """
        at_mean: Decoded = self(p.mean)
        spread = (p.var[:, : self.heads.numeric] * self.heads.weight.square()).sum(-1)
        log_var = torch.log(spread + at_mean.log_var.exp())  # (B, F_num)
        return Decoded(at_mean.mean, log_var, at_mean.log_probs).nll(w_num, w_cat)
