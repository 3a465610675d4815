"""Let a classifier abstain from rows, with a guarantee on the rows that it answers."""

from __future__ import annotations

from typing import Any

from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from varjepa import Architecture, SelectiveClassifier, Training, VarTJEPA


def main(epochs: int = 30) -> None:
    short = Training(epochs=epochs, learning_rate=5e-3)
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    X = X.filter(like="mean")  # ten of thirty columns
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0)
    latent = VarTJEPA(Architecture(d=16, depth=2), training=short, random_state=0)
    classifier = make_pipeline(StandardScaler(), LogisticRegression())
    by: tuple[Any, ...] = ("confidence", latent)  # or both, where that foresees errors better
    for abstain_by in by:
        selective = SelectiveClassifier(
            classifier, coverage=0.7, abstain_by=abstain_by, random_state=0
        ).fit(X_train, y_train)
        is_right = selective.predict(X_test) == y_test
        answered = selective.accepts(X_test)
        print(selective.guarantee_)
        print(f"right {is_right.mean():.3f}, where answered {is_right[answered].mean():.3f}")


if __name__ == "__main__":
    main()
