"""How embeddings (n, D, d) enter a predictor that was made for columns.

``linear``  a learned Linear(D·d → D) whose D outputs are treated as D numeric columns: what
            T-JEPA's public code does for every neural predictor
``column``  a learned Linear(d → 1) for each token: D numeric columns from 1/D of ``linear``'s
            weights, which are 39 million for MNIST's 7,000 training rows
``flat``    D·d numeric columns
``tokens``  D tokens, for the predictors that work on tokens
``mean``    the mean over tokens, d numeric columns
``components``  the first principal components of each column's tokens, for trees
``principal``   the first 64 of all columns together, as numeric columns: for tables whose columns
            are many and alike (components.py)
"""

from __future__ import annotations

from typing import Literal, get_args

from varjepa.errors import InputError

Adapter = Literal["linear", "column", "flat", "tokens", "mean", "components", "principal"]

ADAPTERS: dict[str, tuple[Adapter, ...]] = {
    "linear_probe": ("flat", "linear", "mean"),
    "mlp": ("linear", "column", "flat", "mean", "principal"),
    "dcn_v2": ("linear", "column", "flat", "mean", "principal"),
    "resnet": ("flat", "linear", "column", "mean", "principal"),
    "autoint": ("tokens", "linear", "column", "mean", "principal"),
    "ft_transformer": ("linear", "column", "tokens", "mean", "principal"),
    "xgboost": ("flat", "components", "principal", "mean"),
}
"""Which adapters a predictor takes. A token for every one of D·d numbers would be no adapter."""

DEFAULT_ADAPTER: dict[str, Adapter] = {name: allowed[0] for name, allowed in ADAPTERS.items()}
"""The first of each. The paper's probe is one Linear on all tokens; the others were chosen on
validation rows among ``linear``, ``flat``, ``tokens`` and ``mean`` (``varjepa reproduce adapters``,
results/adapters.json), before there were more."""


def check_adapter(predictor: str, adapter: str | None) -> Adapter:
    """The adapter to use, the predictor's default where none is named."""
    if adapter is None:
        return DEFAULT_ADAPTER[predictor]
    for known in get_args(Adapter):
        if adapter == known and known in ADAPTERS[predictor]:
            checked: Adapter = known
            return checked
    raise InputError(
        f"adapter '{adapter}' does not fit {predictor}; choose {' or '.join(ADAPTERS[predictor])}."
    )
