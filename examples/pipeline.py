"""Use the embedding in a scikit-learn pipeline, with frames out and cross-validation."""

from __future__ import annotations

from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from varjepa import Architecture, Training, VarTJEPA


def main(epochs: int = 30) -> None:
    X, y = load_wine(return_X_y=True, as_frame=True)
    short = Training(epochs=epochs, learning_rate=5e-3)
    embed = VarTJEPA(Architecture(d=8, depth=1), training=short, random_state=0)

    pipeline = make_pipeline(embed, StandardScaler(), LogisticRegression(max_iter=1000))
    scores = cross_val_score(pipeline, X, y, cv=3)  # a fit of the embedding in every fold
    print(f"accuracy {scores.mean():.3f}, folds {scores.round(3)}")

    embed.fit(X)
    for library in ("pandas", "polars"):
        Z = embed.set_output(transform=library).transform(X)
        print(library, type(Z).__name__, Z.shape, list(Z.columns[:2]))


if __name__ == "__main__":
    main()
