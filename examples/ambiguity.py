"""
Which rows are ambiguous?
=========================

Does the uncertainty of a row say how ambiguous the row truly is? On real tables nobody knows. SIM,
the built-in table, was made so that we know: each row leans to another class by a known amount.
"""

# %%
# 1,000 rows with 12 numbers and 3 categories, a small model, 300 steps.
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import spearmanr

from varjepa import Architecture, Training, VarTJEPA
from varjepa.demo.sim import SimSettings, draw_sim

sim = draw_sim(SimSettings(rows=1000, numeric=12, noisy=4, binned=3))
table = sim.to_arrow()
small = Architecture(d=32, ff=64, predictor_width=32, predictor_ff=64)
short = Training(max_steps=300, learning_rate=3e-3)
model = VarTJEPA(small, training=short, random_state=0).fit(table)

# %%
# Several questions can be asked, and they have different answers. Which one fits depends on the
# table: the guide says what to expect of each.
scores = {
    "atypical": model.uncertainty(table, "atypical"),
    "nll, balanced": model.uncertainty(table, "nll", "balanced", splits=4),
    "doubtful (default)": model.uncertainty(table),
    "posterior (the paper's)": model.uncertainty(table, "posterior"),
}
agreement = {name: float(spearmanr(u, sim.ambiguity)[0]) for name, u in scores.items()}
for name, value in agreement.items():
    print(f"{name:24} {value:.2f}")

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6))
axes[0].barh(list(agreement)[::-1], list(agreement.values())[::-1], color="#1f6fb4")
axes[0].axvline(0, color="#444444", lw=0.8)
axes[0].set(xlabel="Spearman correlation with the true ambiguity")
name, u = next(iter(scores.items()))
axes[1].scatter(sim.ambiguity, u, s=4, alpha=0.35, color="#b8bdc5")
edges = np.linspace(0, 1, 11)
bins = np.digitize(sim.ambiguity, edges[1:-1])
middle = [np.median(u[bins == i]) for i in range(10)]
axes[1].plot((edges[:-1] + edges[1:]) / 2, middle, "o-", color="#1f6fb4", label="median")
axes[1].set(xlabel="true ambiguity", ylabel=f"uncertainty ({name})")
axes[1].legend()
figure.tight_layout()
