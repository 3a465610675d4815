"""Embed a table without labels, then fit a linear classifier on the embedding."""

from __future__ import annotations

from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from varjepa import Architecture, Training, VarTJEPA


def main(epochs: int = 30) -> None:
    short = Training(epochs=epochs, learning_rate=5e-3)
    X, y = load_wine(return_X_y=True, as_frame=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0)

    model = VarTJEPA(Architecture(d=16, depth=2), training=short, random_state=0)
    model.fit(X_train)  # no labels

    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    raw = clone(classifier).fit(X_train, y_train)
    embedded = clone(classifier).fit(model.transform(X_train), y_train)
    print(f"accuracy on raw columns   {raw.score(X_test, y_test):.3f}")
    print(f"accuracy on the embedding {embedded.score(model.transform(X_test), y_test):.3f}")


if __name__ == "__main__":
    main()
