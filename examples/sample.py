"""
Sample rows
===========

Can the model make new rows that look like the real ones, also for a given value of some columns? We
compare columns, a pair of columns, and ask a classifier to tell real from sampled.
"""

# %%
# A small model, 600 steps.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict

from varjepa import Architecture, Training, VarTJEPA

df = load_diabetes(as_frame=True, scaled=False).data
df["sex"] = df["sex"].map({1.0: "one", 2.0: "two"})  # the table does not say which is which
small = Architecture(d=32, ff=64, predictor_width=32, predictor_ff=64)
short = Training(max_steps=600, learning_rate=3e-3)
model = VarTJEPA(small, training=short, random_state=0).fit(df)
rows = model.sample(len(df))
print(rows.head().round(2))

# %%
# How well does a classifier tell them apart? .5 is a coin. For comparison: real columns, each
# shuffled, which keeps every column and loses what relates them.
rng = np.random.default_rng(0)
shuffled = pd.DataFrame({name: rng.permutation(df[name]) for name in df})
is_made = np.repeat([0, 1], len(df))
for name, made in (("sampled", rows), ("shuffled", shuffled)):
    both = pd.concat([df, made], ignore_index=True).astype({"sex": "category"})
    trees = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)
    guess = cross_val_predict(trees, both, is_made, cv=3, method="predict_proba")[:, 1]
    print(f"{name} rows told from real ones: AUROC {roc_auc_score(is_made, guess):.2f}")

# %%
# Rows with a body mass index that we choose: blood values follow.
heavy = model.sample(len(df), given={"bmi": [38.0]})

figure, axes = plt.subplots(1, 3, figsize=(10, 3.4))
for ax, table, title in ((axes[0], df, "real"), (axes[1], rows, "sampled")):
    ax.scatter(table["s1"], table["s2"], s=8, alpha=0.6, color="#1f6fb4")
    ax.set(title=title, xlabel="s1: total cholesterol", ylabel="s2: LDL", xlim=(80, 310))
    ax.set_ylim(20, 250)
bins = np.linspace(3, 6.5, 24).tolist()
axes[2].hist(df["s5"], bins, color="#b8bdc5", label="real, any bmi", density=True)
axes[2].hist(heavy["s5"], bins, histtype="step", color="#c2410c", label="bmi = 38", density=True)
axes[2].set(xlabel="s5: log triglycerides", title="sampled given bmi")
axes[2].legend()
figure.tight_layout()
