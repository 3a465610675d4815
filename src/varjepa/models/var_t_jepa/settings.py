"""Shape of a Var-T-JEPA. Defaults are the paper's for Adult unless a docstring says otherwise."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VarTJepaSettings:
    """Appendix D.6.2's architecture columns, and what the paper leaves open."""

    d: int = 64
    """width of tokens and of every latent (d = d_z = D_hid)"""
    depth: int = 8
    """L, transformer layers of context encoder and target posterior"""
    heads: int = 4
    """H"""
    ff: int = 256
    """feed-forward width"""
    predictor_width: int = 16
    """L_p, the predictor's token width"""
    predictor_depth: int = 4
    """layers of the predictor; not in the paper"""
    predictor_heads: int = 4
    """H_p"""
    predictor_ff: int = 256
    """ff_p"""
    imputer_width: int = 64
    """token width of the imputer, a second predictor outside the objective; not in the paper"""
    imputer_depth: int = 3
    """layers of the imputer; 0: none, the objective's own predictor fills holes as in the paper"""
    imputer_heads: int = 4
    """attention heads of the imputer"""
    imputer_ff: int = 128
    """feed-forward width of the imputer"""
    imputer_kl: float = 0.001
    """weight of KL(q ‖ r) beside the values' likelihood in the imputer's own loss"""
    n_cls: int = 1
    """N_CLS, learned tokens in front of both encoders; not in the paper"""
    l_pool: int = 4
    """L_pool, tokens that attention pooling makes of s_x; not in the paper"""
    auxiliary_layers: int = 2
    """hidden layers of the auxiliary encoder; not in the paper"""
    cls_in_context: bool = True
    """whether the CLS latents are part of s_x for pooling and predictor. They keep the context from
    being empty where every context cell of a row is missing; with True their KL counts too"""
    noise_variance: float = 1.0
    """σ_x² and σ_y² before training. Smaller ones learn numbers sooner; on Adult they also turn the
    posterior's spread upside down (docs/tabular-log.md)"""
    min_noise_variance: float = 1e-4
    """floor of σ_x² and σ_y²: near-constant columns drive them to 0"""

    def __post_init__(self) -> None:
        for width, heads in (
            (self.d, self.heads),
            (self.predictor_width, self.predictor_heads),
            (self.imputer_width, self.imputer_heads),
        ):
            if width % heads:
                raise ValueError(f"width {width} is not a multiple of {heads} heads")
        if self.n_cls < 1:
            raise ValueError("n_cls must be at least 1")
        if not 0 < self.min_noise_variance < self.noise_variance:
            raise ValueError("noise_variance must be above min_noise_variance, and both above 0")
