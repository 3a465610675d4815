"""Fit and embed a folder of Parquet files that may be larger than memory."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from sklearn.datasets import load_diabetes

from varjepa import Architecture, Run, Training, VarTJEPA
from varjepa.estimators import Embedder
from varjepa.scale import embed_to_folder
from varjepa.tables.streaming import find_tables


def main(epochs: int = 30) -> None:
    short = Training(epochs=epochs, learning_rate=5e-3)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "logs").mkdir()
        table = load_diabetes(as_frame=True, scaled=False).data
        for part in range(4):
            table.iloc[part::4].to_parquet(folder / "logs" / f"{part}.parquet")

        model = VarTJEPA(Architecture(d=16, depth=2), training=short, random_state=0)
        # a fit that was killed continues when this script runs again
        model.fit(folder / "logs", run=Run(checkpoint_dir=folder / "checkpoints", resume=True))
        model.save(folder / "model")

        # memory stays flat; a killed run continues too
        embedder = Embedder(str(folder / "model"), keep=("age", "sex"))
        embed_to_folder(embedder, find_tables(str(folder / "logs")), folder / "embedded")
        embedded = pq.read_table(folder / "embedded")
        print(f"{embedded.num_rows} rows: {embedded.column_names[:4]} … uncertainty")


if __name__ == "__main__":
    main()
