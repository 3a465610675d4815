"""
Fit and embed a folder of files
===============================

What if the table is many files, larger than memory, and the job may be killed? ``fit`` reads a
folder, continues from a checkpoint, and the embedding goes into a folder file by file.
"""

# %%
# Four small Parquet files stand for the large ones; the calls are the same. A small model, 400
# steps.
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pyarrow.parquet as pq
from sklearn.datasets import load_diabetes

from varjepa import Architecture, Run, Training, VarTJEPA
from varjepa.estimators import Embedder
from varjepa.scale import embed_to_folder
from varjepa.tables.streaming import find_tables

temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
(folder / "logs").mkdir()
table = load_diabetes(as_frame=True, scaled=False).data
for part in range(4):
    table.iloc[part::4].to_parquet(folder / "logs" / f"{part}.parquet")

# %%
# A fit that was killed continues when the script runs again.
small = Architecture(d=32, ff=64, predictor_width=32, predictor_ff=64)
short = Training(max_steps=400, learning_rate=3e-3)
run = Run(checkpoint_dir=folder / "checkpoints", resume=True)
model = VarTJEPA(small, training=short, random_state=0).fit(folder / "logs", run=run)
model.save(folder / "model")

# %%
# Memory stays flat, and a killed run continues here, too.
embedder = Embedder(str(folder / "model"), keep=("age", "sex"))
summary = embed_to_folder(embedder, find_tables(str(folder / "logs")), folder / "embedded")
embedded = pq.read_table(folder / "embedded")
print(f"{embedded.num_rows} rows, {embedded.num_columns} columns: {embedded.column_names[:4]} …")
temporary.cleanup()

# %%
# How the training went: the objective, and the likelihood of held-out cells that selects the epoch.
epochs = [record["epoch"] for record in model.history_]
validations = [record for record in model.history_ if model.selected_by_ in record]
figure, axes = plt.subplots(1, 2, figsize=(8, 3.3))
axes[0].plot(epochs, [record["loss"] for record in model.history_], color="#1f6fb4")
axes[0].set(xlabel="epoch", ylabel="loss", title="objective, training rows")
scores = [record[model.selected_by_] for record in validations]
axes[1].plot([record["epoch"] for record in validations], scores, "o-", color="#1f6fb4")
axes[1].axvline(model.best_epoch_, ls="--", color="#c2410c", label="selected epoch")
axes[1].set(xlabel="epoch", title=model.selected_by_)
axes[1].legend()
figure.tight_layout()
