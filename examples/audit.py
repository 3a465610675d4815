"""
Find wrong cells, and repair them
=================================

Which cells of a table are wrong, and what should they be? We shift the decimal point of twenty
cells and audit the table, without telling the audit anything.
"""

# %%
# Without its second argument, ``varjepa.audit`` fits a model with the default settings. Here it is
# a small one, trained for 400 steps.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

import varjepa
from varjepa import Architecture, Training, VarTJEPA

table = load_diabetes(as_frame=True, scaled=False).data.drop(columns="sex")
rng = np.random.default_rng(0)
wrong = {(int(rng.integers(len(table))), str(rng.choice(table.columns))) for _ in range(20)}
truth = table.copy()
for row, column in sorted(wrong):
    table.loc[row, column] = round(table.loc[row, column] * rng.choice([0.1, 10]), 4)

small = Architecture(d=32, ff=64, predictor_width=32, predictor_ff=64)
short = Training(max_steps=400, learning_rate=3e-3)
audit = varjepa.audit(table, VarTJEPA(small, training=short, random_state=0))
print(audit)

# %%
# The most suspicious cells come first, each with a repair and its interval.
cells = audit.cells
is_wrong = np.array([place in wrong for place in zip(cells["row"], cells["column"], strict=True)])
print(f"{is_wrong[: len(wrong)].sum()} of {len(wrong)} wrong cells are in the top {len(wrong)}")
print(cells[["row", "column", "value", "repair", "lower", "upper", "flagged"]].head(8))

# %%
# A new table with the repairs; ``audit.changes(0)`` lists them. By default, only those are made
# that are more likely right than not. Here it is all of them: a guess is better than a wrong
# decimal point.
mended = audit.repaired(min_confidence=0)
print(f"{int((mended != table).to_numpy().sum())} cells repaired")
rows, columns = zip(*sorted(wrong), strict=True)
places = np.array(rows), truth.columns.get_indexer(columns)
for name, some in (("as they came", table), ("repaired", mended)):
    error = ((some - truth).abs() / truth.std()).to_numpy()[places]
    print(f"wrong cells {name}: off by {np.median(error):.1f} standard deviations in the median")

# %%
figure, ax = plt.subplots(figsize=(7, 3.2))
rank = np.arange(1, len(cells) + 1)
for chosen, name, colour in ((~is_wrong, "right", "#b8bdc5"), (is_wrong, "wrong", "#c2410c")):
    ax.scatter(rank[chosen], cells["log_odds"][chosen], s=14, color=colour, label=f"{name} cells")
ax.axvline(cells["flagged"].sum() + 0.5, ls="--", color="#444444", label="flagged to the left")
ax.set(xscale="log", xlabel="rank among all cells", ylabel="log odds of an error")
ax.legend()
figure.tight_layout()
