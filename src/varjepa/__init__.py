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

from varjepa.estimators import TJEPA, VarTJEPA
from varjepa.estimators.risk_coverage import RiskCoverageDisplay
from varjepa.estimators.selective import SelectiveClassifier
from varjepa.version import __version__

__all__ = ["TJEPA", "RiskCoverageDisplay", "SelectiveClassifier", "VarTJEPA", "__version__"]
