"""Find cells that do not fit the rest of their row, and see what they should be."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer

import varjepa
from varjepa import Architecture, Training, VarTJEPA


def main(epochs: int = 30) -> None:
    table = load_breast_cancer(as_frame=True).data.filter(like="mean")
    rng = np.random.default_rng(0)
    wrong = {(int(rng.integers(len(table))), str(rng.choice(table.columns))) for _ in range(20)}
    for row, column in sorted(wrong):  # a decimal point in the wrong place
        table.loc[row, column] *= rng.choice([0.1, 10])

    small = Architecture(d=16, ff=32, predictor_width=16, predictor_ff=32)
    short = Training(epochs=epochs, learning_rate=5e-3)
    # without the second argument a model with the default settings is fitted
    audit = varjepa.audit(table, VarTJEPA(small, training=short, random_state=0))
    print(audit)
    top = audit.cells.head(20)
    found = wrong & set(zip(top["row"], top["column"], strict=True))
    print(f"{len(found)} of {len(wrong)} wrong cells are in the top {len(top)}")
    print(top[["row", "column", "value", "repair", "lower", "upper"]].head(5).to_string())
    print(audit.columns[["column", "predictable", "flagged"]].head(3).to_string())

    mended = audit.repaired(min_confidence=0.5)  # a new table; audit.changes(0.5) lists the cells
    print(f"{int((mended != table).to_numpy().sum())} cells repaired")


if __name__ == "__main__":
    main()
