"""Var-JEPA: self-supervised learning with a posterior over every latent.

The names in this package are the paper's symbols:

=========  =====================================================================
``x``      context observation
``y``      target observation (``w`` in the tabular model: the complete row)
``s_x``    context latent, ``q(s_x | x)``, prior N(0, I)
``z``      auxiliary latent, ``q(z | s_x)``, prior N(0, I): what x leaves open about y
``s_y``    target latent, ``q(s_y | s_x, z, y)``; its prior ``p(s_y | s_x, z)`` is the predictor
``rec``    −log p(x | s_x)
``gen``    −log p(y | s_y)
``kl_*``   the three divergences of the ELBO
=========  =====================================================================

Shapes in comments: R stacked runs, B rows of a batch, N rows, d latent dimension, d_z auxiliary
dimension, A directions, T frequencies.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from varjepa.version import __version__

if TYPE_CHECKING:
    from varjepa.audit import Audit, audit
    from varjepa.estimators import TJEPA, VarTJEPA
    from varjepa.estimators.fitting import Validation
    from varjepa.estimators.outliers import OutlierDetector
    from varjepa.estimators.risk_coverage import RiskCoverageDisplay
    from varjepa.estimators.selective import SelectiveClassifier
    from varjepa.explore import explore
    from varjepa.settings import (
        Architecture,
        Objective,
        PointArchitecture,
        PointObjective,
        PointTraining,
        Run,
        Training,
    )

__all__ = [
    "TJEPA",
    "Architecture",
    "Audit",
    "Objective",
    "OutlierDetector",
    "PointArchitecture",
    "PointObjective",
    "PointTraining",
    "RiskCoverageDisplay",
    "Run",
    "SelectiveClassifier",
    "Training",
    "Validation",
    "VarTJEPA",
    "__version__",
    "audit",
    "explore",
]

# torch and pyarrow take seconds to import: only who uses an estimator waits for them
_MODULES = {
    "OutlierDetector": "varjepa.estimators.outliers",
    "Audit": "varjepa.audit",
    "RiskCoverageDisplay": "varjepa.estimators.risk_coverage",
    "SelectiveClassifier": "varjepa.estimators.selective",
    "Validation": "varjepa.estimators.fitting",
    **dict.fromkeys(
        (
            "Architecture",
            "Objective",
            "PointArchitecture",
            "PointObjective",
            "PointTraining",
            "Run",
            "Training",
        ),
        "varjepa.settings",
    ),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("audit", "explore"):  # packages that can be called; importing sets the name
        return import_module(f"varjepa.{name}")
    value = getattr(import_module(_MODULES.get(name, "varjepa.estimators")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
