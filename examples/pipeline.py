"""
In a scikit-learn pipeline
==========================

Can the model be a step of a pipeline, be cross-validated, and give frames? It is a transformer like
any other.
"""

# %%
# A small model, 150 steps, fitted anew in each of the three folds.
import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from varjepa import Architecture, Training, VarTJEPA

X, y = load_wine(return_X_y=True, as_frame=True)
small = Architecture(d=16, ff=32, predictor_width=16, predictor_ff=32)
short = Training(max_steps=150, learning_rate=5e-3)
embed = VarTJEPA(small, training=short, random_state=0)

linear = LogisticRegression(max_iter=1000)
pipelines = {
    "raw columns": make_pipeline(StandardScaler(), linear),
    "embedding": make_pipeline(embed, StandardScaler(), linear),
}
scores = {name: cross_val_score(pipeline, X, y, cv=3) for name, pipeline in pipelines.items()}
for name, folds in scores.items():
    print(f"{name}: accuracy {folds.mean():.3f}, folds {folds.round(3)}")

# %%
# Frames out, of the library that you like, with named columns.
embed.fit(X)
for library in ("pandas", "polars"):
    Z = embed.set_output(transform=library).transform(X)
    print(library, type(Z).__name__, Z.shape, list(Z.columns[:2]))

# %%
# A fitted model shows its columns, its training and its validation score, here and in a notebook.
embed

# %%
figure, ax = plt.subplots(figsize=(6, 2.8))
for position, folds in enumerate(scores.values()):
    ax.scatter(folds, [position] * len(folds), color="#1f6fb4")
    ax.scatter(folds.mean(), position, marker="|", s=400, color="#c2410c")
ax.set(yticks=[0, 1], yticklabels=list(scores), xlabel="accuracy of three folds, and their mean")
ax.set_ylim(-0.6, 1.6)
figure.tight_layout()
