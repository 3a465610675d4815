"""The seven training shapes of Section 4.2: Appendix D.6.2's table as settings.

Feature counts are the paper's (numeric/categorical). Levels count MISSING too; Adult's are those of
its eight categorical columns, SIM's bins are ours since the paper does not number them. The imputer
is left out: Algorithm 1 has none.
"""

from __future__ import annotations

from dataclasses import dataclass

from varjepa.masking import MaskSettings
from varjepa.models.rows import TableShape
from varjepa.models.var_t_jepa.settings import VarTJepaSettings


@dataclass(frozen=True, slots=True)
class BenchShape:
    """One dataset's tensors and networks; rows themselves are random."""

    table: TableShape
    """features and levels"""
    model: VarTJepaSettings
    """widths, depths and heads"""
    masks: MaskSettings
    """shares and K"""
    batch: int = 512
    """rows of a step"""
    dropout: float = 0.001
    """`drop`, of the encoders; only the reference can use it"""
    predictor_dropout: float = 0.002
    """`dropp`"""


_ADULT = VarTJepaSettings(
    imputer_depth=0, d=64, depth=8, heads=4, ff=256, predictor_width=16, predictor_ff=256
)
_ADULT_MASKS = MaskSettings((0.1, 0.3), (0.1, 0.6), targets=4)

SHAPES: dict[str, BenchShape] = {
    "adult": BenchShape(TableShape(6, (9, 17, 8, 15, 7, 6, 3, 42)), _ADULT, _ADULT_MASKS),
    "covertype": BenchShape(
        TableShape(54),
        VarTJepaSettings(
            imputer_depth=0, d=64, depth=8, heads=8, ff=64, predictor_width=16, predictor_ff=256
        ),
        MaskSettings((0.15, 0.35), (0.15, 0.6), targets=4),
        dropout=0.0015,
    ),
    "electricity": BenchShape(
        TableShape(8),
        VarTJepaSettings(
            imputer_depth=0, d=64, depth=6, heads=4, ff=64, predictor_width=16, predictor_ff=128
        ),
        MaskSettings((0.15, 0.6), (0.15, 0.9), targets=4),
    ),
    "credit": BenchShape(TableShape(23), _ADULT, _ADULT_MASKS),
    "bank": BenchShape(TableShape(16), _ADULT, _ADULT_MASKS),
    "mnist": BenchShape(
        TableShape(784),
        VarTJepaSettings(
            imputer_depth=0, d=64, depth=8, heads=4, ff=128, predictor_width=32, predictor_ff=256
        ),
        MaskSettings((0.15, 0.5), (0.15, 0.8), targets=4),
        batch=256,
        dropout=0.002,
    ),
    "sim": BenchShape(
        TableShape(28, (4, 4, 4, 4)),
        VarTJepaSettings(
            imputer_depth=0, d=64, depth=16, heads=2, ff=64, predictor_width=16, predictor_ff=256
        ),
        MaskSettings((0.15, 0.5), (0.15, 0.8), targets=4),
        dropout=0.002,
    ),
}
