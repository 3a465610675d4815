"""Fill missing cells, with a range for each, and compare with what else could be used."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.impute import KNNImputer, SimpleImputer

from varjepa import Architecture, Training, VarTJEPA


def main(epochs: int = 30) -> None:
    short = Training(epochs=epochs, learning_rate=5e-3)
    full = load_diabetes(as_frame=True, scaled=False).data
    is_removed = np.random.default_rng(0).random(full.shape) < 0.2
    X = full.mask(is_removed)

    model = VarTJEPA(Architecture(d=16, depth=2), training=short, random_state=0).fit(X)
    others = {"mean": SimpleImputer(), "nearest neighbours": KNNImputer()}
    filled = {
        name: one.set_output(transform="pandas").fit_transform(X) for name, one in others.items()
    }
    filled["varjepa"] = model.impute(X)
    for name, table in filled.items():
        error = ((table - full) / full.std()).to_numpy()[is_removed]
        print(f"error of {name}: {np.sqrt(np.mean(error**2)):.3f} standard deviations")

    samples = np.stack([table.to_numpy() for table in model.impute_samples(X, n=20)])
    low, high = np.quantile(samples, (0.05, 0.95), axis=0)
    is_inside = (low <= full.to_numpy()) & (full.to_numpy() <= high)
    print(f"90 % intervals hold {is_inside[is_removed].mean():.0%} of the removed values")


if __name__ == "__main__":
    main()
