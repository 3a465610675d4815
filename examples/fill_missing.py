"""
Fill missing cells, with intervals
==================================

What were the missing values, and how far off may the guess be? We remove 20 % of the cells of the
diabetes table, fill them with three methods, and check the intervals of ours.
"""

# %%
# A small model, 600 steps: less good than the default, which takes minutes.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.impute import KNNImputer, SimpleImputer

from varjepa import Architecture, Training, VarTJEPA

full = load_diabetes(as_frame=True, scaled=False).data
is_removed = np.random.default_rng(0).random(full.shape) < 0.2
X = full.mask(is_removed)

small = Architecture(d=32, ff=64, predictor_width=32, predictor_ff=64)
short = Training(max_steps=600, learning_rate=3e-3)
model = VarTJEPA(small, training=short, random_state=0).fit(X)

# %%
# The error is the root mean square over all removed cells, each in units of its column's standard
# deviation.
filled = {
    "mean": SimpleImputer().set_output(transform="pandas").fit_transform(X),
    "nearest neighbours": KNNImputer().set_output(transform="pandas").fit_transform(X),
    "varjepa": model.impute(X),
}
spread = full.std()
errors = {
    name: float(np.sqrt(np.mean((((table - full) / spread).to_numpy()[is_removed]) ** 2)))
    for name, table in filled.items()
}
for name, error in errors.items():
    print(f"{name:20} {error:.3f}")

# %%
# Each filled cell has an interval, calibrated on held-out cells.
cells = model.predict_cells(X, coverage=0.9)
column = "s6"  # blood sugar
gone = is_removed[:, list(full).index(column)]
truth, guess = full[column][gone], cells.best[column][gone]
low, high = cells.lower[column][gone], cells.upper[column][gone]
inside = float(((low <= truth) & (truth <= high)).mean())
print(f"90 % intervals of {column} hold {inside:.0%} of {gone.sum()} removed values")

# %%
figure, axes = plt.subplots(1, 2, figsize=(8, 3.4))
axes[0].barh(list(errors), list(errors.values()), color=["#bbbbbb", "#888888", "#1f6fb4"])
axes[0].set(xlabel="error, standard deviations", title="all removed cells")
axes[1].errorbar(truth, guess, [guess - low, high - guess], fmt="o", ms=4, lw=0.8, color="#1f6fb4")
axes[1].plot([truth.min(), truth.max()], [truth.min(), truth.max()], "--", color="#8a8f98")
axes[1].set(xlabel=f"true {column}", ylabel="filled, with its interval", title="90 % intervals")
figure.tight_layout()
