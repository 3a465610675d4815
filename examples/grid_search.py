"""
Choose settings by grid search
==============================

Which width and learning rate suit this table? Every field of the settings is a nested parameter, so
scikit-learn's searches can vary it.
"""

# %%
# One layer, 100 steps, two folds: eight fits and one with the best settings.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from varjepa import Architecture, Training, VarTJEPA

X, y = load_iris(return_X_y=True, as_frame=True)
short = Training(max_steps=100)
model = VarTJEPA(Architecture(depth=1), training=short, random_state=0)
pipeline = Pipeline([("embed", model), ("classify", LogisticRegression(max_iter=1000))])
widths, rates = [8, 32], [1e-3, 5e-3]
grid = {"embed__architecture__d": widths, "embed__training__learning_rate": rates}

search = GridSearchCV(pipeline, grid, cv=2).fit(X, y)
print(f"best: {search.best_params_}")

# %%
accuracy = np.reshape(search.cv_results_["mean_test_score"], (len(widths), len(rates)))
figure, ax = plt.subplots(figsize=(5, 3.2))
image = ax.imshow(accuracy, cmap="viridis")
ax.set(xlabel="learning rate", ylabel="width d")
ax.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
ax.set_yticks(range(len(widths)), [f"{width:g}" for width in widths])
for (i, j), value in np.ndenumerate(accuracy):
    ax.text(j, i, f"{value:.3f}", ha="center", va="center", bbox={"color": "white", "alpha": 0.8})
figure.colorbar(image, label="accuracy, mean of two folds")
figure.tight_layout()
