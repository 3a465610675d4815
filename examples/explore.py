"""
Explore a map of the rows
=========================

Which rows are alike, and which groups does a table have? We make the page that ``varjepa explore``
writes, and look up the rows that are most like one of them.
"""

# %%
# A small model, 300 steps. The page shows the column ``cultivar``, which the model never sees.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

import varjepa
from varjepa import Architecture, Training, VarTJEPA

table, cultivar = load_wine(return_X_y=True, as_frame=True)
small = Architecture(d=32, ff=64, predictor_width=32, predictor_ff=64)
short = Training(max_steps=300, learning_rate=3e-3)
model = VarTJEPA(small, training=short, random_state=0).fit(table)

# %%
# The five rows that are most like row 17, and how often such rows are of the same cultivar.
near = model.similar(table, k=5)
print(near[near["query"] == 17])
same = cultivar.to_numpy()[near["row"]] == cultivar.to_numpy()[near["query"]]
print(f"{same.mean():.2f} of the similar rows are of the same cultivar")

# %%
# The page, to click on: colour by a column, drag over a group, choose a row. ``page.save`` writes
# it as one HTML file, which holds the rows it shows.
page = varjepa.explore(model, table.assign(cultivar=cultivar.map("cultivar {}".format)))
page

# %%
# The same map as a figure, with row 17 and the rows that are most like it.
x, y = np.array(page.x), np.array(page.y)
score = np.array(dict(page.measures)["outlier score"], dtype=float)
alike = near["row"][near["query"] == 17]
figure, axes = plt.subplots(1, 2, figsize=(8, 3.4))
axes[0].scatter(x, y, c=cultivar, cmap="viridis", s=18)
axes[0].scatter(x[alike], y[alike], s=90, facecolors="none", edgecolors="#c2410c", label="similar")
axes[0].scatter(x[17], y[17], marker="*", s=160, color="#c2410c", label="row 17")
axes[0].set(title="by cultivar")
axes[0].legend()
points = axes[1].scatter(x, y, c=score, cmap="cividis", s=18)
axes[1].set(title="by outlier score")
figure.colorbar(points, ax=axes[1])
for ax in axes:
    ax.set(xticks=[], yticks=[])
figure.tight_layout()
