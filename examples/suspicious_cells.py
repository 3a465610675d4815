"""Learn from trusted rows, then find cells of new rows that do not fit the rest of their row."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer

from varjepa import Architecture, Training, VarTJEPA


def main(epochs: int = 30) -> None:
    short = Training(epochs=epochs, learning_rate=5e-3)
    X = load_breast_cancer(as_frame=True).data.filter(like="mean")
    trusted, new = X[:400], X[400:].copy()
    rng = np.random.default_rng(0)
    wrong = {(int(rng.choice(new.index)), str(rng.choice(new.columns))) for _ in range(20)}
    for row, column in sorted(wrong):  # a decimal point in the wrong place
        new.loc[row, column] *= rng.choice([0.1, 10])

    model = VarTJEPA(Architecture(d=16, depth=2), training=short, random_state=0).fit(trusted)
    cells = model.cell_uncertainty(new, kind="nll", splits=8)  # a frame with the columns of new
    top = cells.stack().nlargest(20)
    print(f"{len(wrong & set(top.index))} of {len(wrong)} wrong cells are in the top {len(top)}")

    is_suspicious = cells >= top.min()
    expected = model.impute(new.mask(is_suspicious))
    for (row, column), score in top.head(5).items():
        value, guess = new.loc[row, column], expected.loc[row, column]
        print(f"row {row}, {column}: {value:.3g}, expected {guess:.3g} (score {score:.1f})")


if __name__ == "__main__":
    main()
