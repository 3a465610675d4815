"""Small estimators for tests: hyperparameters by their plain names, put where they belong."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from varjepa.estimators.base import TableEstimator
from varjepa.settings import Run, field_names, nested

Estimator = TypeVar("Estimator", bound=TableEstimator)


def small(kind: type[Estimator], **flat: Any) -> Estimator:
    """An estimator from ``d=8, epochs=2, random_state=0`` and the like."""
    return kind().set_params(**nested(kind.settings_kinds, flat))


def fit_small(kind: type[Estimator], X: Any, y: Any = None, **flat: Any) -> Estimator:
    """A fitted one; fields of :class:`Run` go to ``fit``."""
    run = {name: flat.pop(name) for name in field_names(Run) if name in flat}
    return small(kind, **flat).fit(X, y, run=Run(**run))


def use_as_defaults(
    monkeypatch: pytest.MonkeyPatch, kind: type[TableEstimator], **flat: Any
) -> None:
    """Let every estimator that is made without settings have these."""
    made, plain = small(kind, **flat), kind.settings
    defaults = {name: made.settings(name) for name in kind.settings_kinds}

    def settings(self: TableEstimator, name: str) -> Any:
        own = getattr(self, name)
        if own is None or own == kind.settings_kinds[name]():
            return defaults[name]
        return plain(self, name)

    monkeypatch.setattr(kind, "settings", settings)
    sizes = kind.settings_kinds["architecture"]
    monkeypatch.setattr(sizes, "for_rows", staticmethod(lambda rows: defaults["architecture"]))
