"""Names of predictors and representations as a reader sees them."""

from __future__ import annotations

TITLES = {
    "mlp": "MLP",
    "dcn_v2": "DCNv2",
    "resnet": "ResNet",
    "autoint": "AutoInt",
    "ft_transformer": "FT-Transformer",
    "xgboost": "XGBoost",
    "linear_probe": "linear probe",
    "logistic": "logistic regression",
    "raw": "raw",
    "pca": "PCA of raw",
    "t_jepa": "T-JEPA",
    "var_t_jepa": "Var-T-JEPA",
    "raw+var_t_jepa": "raw + Var-T-JEPA",
}
