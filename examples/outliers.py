"""
Find outliers
=============

Which rows do not belong here, and why? Most rows of our table are benign tumours, a few are
malignant ones. The detector is not told which.
"""

# %%
# A small model, 400 steps. ``OutlierDetector()`` fits the default one.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import IsolationForest
from sklearn.metrics import RocCurveDisplay, roc_auc_score

from varjepa import Architecture, OutlierDetector, Training, VarTJEPA

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X = X.filter(like="mean")  # ten of thirty columns
table = pd.concat([X[y == 1], X[y == 0].sample(20, random_state=0)], ignore_index=True)
is_malignant = np.arange(len(table)) >= (y == 1).sum()

small = Architecture(d=32, ff=64, predictor_width=32, predictor_ff=64)
short = Training(max_steps=400, learning_rate=3e-3)
model = VarTJEPA(small, training=short)
detector = OutlierDetector(model, contamination=0.05, random_state=0).fit(table)
forest = IsolationForest(random_state=0).fit(table)

scores = {
    "varjepa": -detector.score_samples(table),
    "isolation forest": -forest.score_samples(table),
}
for name, score in scores.items():
    print(f"{name}: AUROC {roc_auc_score(is_malignant, score):.3f}")

# %%
# Why is the most unusual row unusual? Its least likely cells, given its other columns:
top = int(np.argmax(scores["varjepa"]))
why = detector.estimator_.cell_uncertainty(table, "atypical").iloc[top].nlargest(3)
print(pd.DataFrame({"value": table.loc[top, why.index], "median": table.median()[why.index]}))

# %%
figure, axes = plt.subplots(1, 2, figsize=(8, 3.4))
bins = np.linspace(scores["varjepa"].min(), scores["varjepa"].max(), 30).tolist()
axes[0].hist(scores["varjepa"][~is_malignant], bins, color="#b8bdc5", label="benign")
axes[0].hist(scores["varjepa"][is_malignant], bins, color="#c2410c", label="malignant")
axes[0].set(xlabel="outlier score", ylabel="rows", yscale="log")
axes[0].legend()
for name, score in scores.items():
    RocCurveDisplay.from_predictions(is_malignant, score, name=name, ax=axes[1])
figure.tight_layout()
