"""Claims about RiskCoverageDisplay.

- The lines drawn are the risk–coverage curves, random abstention and the oracle.
- ``from_estimator`` and ``from_predictions`` agree; a SelectiveClassifier's threshold is a dot.
- It draws on given axes, again and elsewhere; names with $ or _ are shown as they are.
- Without matplotlib, one sentence.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from varjepa.errors import InputError
from varjepa.estimators.risk_coverage import RiskCoverageDisplay
from varjepa.estimators.selective import SelectiveClassifier
from varjepa.metrics.selective import aurc, risk_coverage

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def rows(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    return rng.normal(size=(n, 2)) + y[:, None], y


def test_lines_are_the_curves() -> None:
    X, y = rows()
    predicted, u = GaussianNB().fit(X, y).predict(X), np.abs(X.sum(1) - 1)
    wrong = predicted != y
    display = RiskCoverageDisplay.from_predictions(y, predicted, {"up": u, "down": -u})
    up, down, random, oracle = display.ax_.get_lines()
    np.testing.assert_array_equal(up.get_ydata(), risk_coverage(wrong, u).risk)
    np.testing.assert_array_equal(down.get_ydata(), risk_coverage(wrong, -u).risk)
    np.testing.assert_allclose(random.get_ydata(), wrong.mean())
    np.testing.assert_array_equal(oracle.get_ydata(), risk_coverage(wrong, wrong).risk)
    np.testing.assert_array_equal(up.get_xdata(), display.coverage)
    assert display.aurc == {"up": aurc(wrong, u), "down": aurc(wrong, -u)}
    words = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert [word.split(" (")[0] for word in words] == ["up", "down", "random", "oracle"]


def test_estimators_and_predictions_agree() -> None:
    X, y = rows()
    model = GaussianNB().fit(X, y)
    one = RiskCoverageDisplay.from_estimator(model, X, y, plot_bounds=False)
    u = 1 - model.predict_proba(X).max(1)
    other = RiskCoverageDisplay.from_predictions(y, model.predict(X), u, name="GaussianNB")
    np.testing.assert_array_equal(one.risk["GaussianNB"], other.risk["GaussianNB"])
    assert len(one.ax_.get_lines()) == 1
    with pytest.raises(InputError, match="abstain_by must be one of"):
        RiskCoverageDisplay.from_estimator(model, X, y, abstain_by="luck")


def test_a_dot_shows_the_threshold() -> None:
    X, y = rows()
    model = SelectiveClassifier(GaussianNB(), coverage=0.6, random_state=0).fit(X, y)
    display = RiskCoverageDisplay.from_estimator(model, X, y)
    answered = model.accepts(X)
    expected = (answered.mean(), (model.predict(X) != y)[answered].mean())
    assert display.operating_point == pytest.approx(expected)
    dot = display.ax_.get_lines()[-1]
    assert (dot.get_xdata()[0], dot.get_ydata()[0]) == pytest.approx(expected)
    k = round(answered.sum())
    assert expected[1] == pytest.approx(display.risk["GaussianNB"][k - 1])  # it lies on the curve


def test_drawn_again_elsewhere() -> None:
    X, y = rows()
    display = RiskCoverageDisplay(y, {"x": X[:, 0]})
    _, (left, right) = plt.subplots(1, 2)
    assert display.plot(left, color="red").ax_ is left
    assert left.get_lines()[0].get_color() == "red"
    assert display.plot(right).ax_ is right
    assert display.figure_ is right.figure


def test_names_are_shown_as_they_are() -> None:
    X, y = rows()
    display = RiskCoverageDisplay.from_predictions(y, 1 - y, {"_a": X[:, 0], "$x": X[:, 1]})
    display.figure_.canvas.draw()
    words = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert words[0].startswith("_a (")
    assert words[1].startswith("$x (")


def test_at_least_one_curve() -> None:
    with pytest.raises(InputError, match="at least one uncertainty"):
        RiskCoverageDisplay([0, 1], {})


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    display = RiskCoverageDisplay([0, 1], {"x": [0.1, 0.2]})
    with pytest.raises(InputError, match="figures need matplotlib"):
        display.plot()
