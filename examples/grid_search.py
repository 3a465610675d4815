"""Choose settings of the model with scikit-learn's grid search."""

from __future__ import annotations

from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from varjepa import Architecture, Training, VarTJEPA


def main(epochs: int = 20) -> None:
    X, y = load_iris(return_X_y=True, as_frame=True)
    model = VarTJEPA(Architecture(depth=1), training=Training(epochs=epochs), random_state=0)
    pipeline = Pipeline([("embed", model), ("classify", LogisticRegression(max_iter=1000))])
    grid = {"embed__training__learning_rate": [1e-3, 5e-3], "embed__architecture__d": [8, 16]}

    search = GridSearchCV(pipeline, grid, cv=3).fit(X, y)
    for values, accuracy in zip(
        search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
    ):
        print(f"{accuracy:.3f}  {values}")
    print(f"best: {search.best_params_}")


if __name__ == "__main__":
    main()
