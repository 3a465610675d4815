"""Find cells that do not fit the rest of their row."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer

from varjepa import Architecture, Training, VarTJEPA


def main(epochs: int = 60) -> None:
    short = Training(epochs=epochs, learning_rate=5e-3)
    X = load_breast_cancer(as_frame=True).data.filter(like="mean")
    rng = np.random.default_rng(0)
    wrong = {(int(rng.integers(len(X))), str(rng.choice(X.columns))) for _ in range(20)}
    for row, column in wrong:  # a value of the column, but of another row
        X.loc[row, column] = X[column].sample(random_state=row).item()

    model = VarTJEPA(Architecture(d=16, depth=2), training=short, random_state=0).fit(X)
    cells = model.cell_uncertainty(X, kind="nll", splits=8)  # a frame with the columns of X
    repaired = model.impute(X.mask(cells > np.quantile(cells, 0.995)))
    top = cells.stack().nlargest(20)
    print(f"{len(wrong & set(top.index))} of {len(wrong)} wrong cells are in the top {len(top)}")
    for (row, column), score in top.head(5).items():
        value, guess = X.loc[row, column], repaired.loc[row, column]
        print(f"row {row}, {column}: {value:.3g}, expected {guess:.3g} (score {score:.1f})")


if __name__ == "__main__":
    main()
