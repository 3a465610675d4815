"""(VI) Target decoder."""

from __future__ import annotations

from varjepa.models.var_t_jepa.decoder import Decoder


class TargetDecoder(Decoder):
    """p(w | s_w), with noise σ_y²."""
