"""RiskCoverageDisplay: what abstaining buys, between random abstention and the oracle."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from varjepa.errors import InputError
from varjepa.estimators.selective import (
    AbstainBy,
    SelectiveClassifier,
    check_abstain_by,
    uncertainty_of,
)
from varjepa.metrics.selective import aurc, risk_coverage

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

_GREY = "#8a8f98"


class RiskCoverageDisplay:
    """Risk–coverage curves of one classifier, in scikit-learn's Display style.

    Make it with ``from_estimator`` or ``from_predictions``; ``plot`` draws it again elsewhere. All
    curves share the classifier's errors, so they meet at its error rate and their AURCs compare.

    Args:
        errors: 1 where the prediction is wrong, else 0.
        uncertainty: curve names with an uncertainty per row.
        operating_point: coverage and risk of a threshold in use, drawn as a dot.

    Attributes:
        coverage: shares k / n.  # (n,)
        risk: per curve, error rate of the k most certain rows.  # (n,)
        oracle_risk: the same for an oracle that leaves out errors first.  # (n,)
        error_rate: risk at full coverage, and at every coverage if rows are left out at random.
        aurc, oracle_aurc: mean of the running risk, per curve and of the oracle.
        ax_, figure_, lines_: what was drawn, after ``plot``.

    Examples:
        >>> display = RiskCoverageDisplay([0, 0, 1, 0, 1], {"confidence": [1, 2, 3, 4, 5]})
        >>> round(display.aurc["confidence"], 3), display.error_rate, round(display.oracle_aurc, 3)
        (0.197, 0.4, 0.13)
    """

    def __init__(
        self,
        errors: ArrayLike,
        uncertainty: Mapping[str, ArrayLike],
        *,
        operating_point: tuple[float, float] | None = None,
    ) -> None:
        if not uncertainty:
            raise InputError("a risk–coverage display needs at least one uncertainty")
        wrong = np.asarray(errors, dtype=np.float64)
        curves = {name: risk_coverage(wrong, values) for name, values in uncertainty.items()}
        self.risk: dict[str, Floats] = {name: curve.risk for name, curve in curves.items()}
        self.oracle_risk: Floats = risk_coverage(wrong, wrong).risk
        self.coverage: Floats = next(iter(curves.values())).coverage
        self.error_rate = float(wrong.mean())
        self.aurc = {name: aurc(wrong, values) for name, values in uncertainty.items()}
        self.oracle_aurc = aurc(wrong, wrong)
        self.operating_point = operating_point

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        uncertainty: ArrayLike | Mapping[str, ArrayLike],
        *,
        name: str = "uncertainty",
        ax: Axes | None = None,
        plot_bounds: bool = True,
        **line: Any,
    ) -> RiskCoverageDisplay:
        """Draw the curve of one uncertainty, or of several given by name."""
        curves = uncertainty if isinstance(uncertainty, Mapping) else {name: uncertainty}
        display = cls(np.asarray(y_true) != np.asarray(y_pred), curves)
        return display.plot(ax, plot_bounds=plot_bounds, **line)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        abstain_by: AbstainBy = "confidence",
        name: str | None = None,
        ax: Axes | None = None,
        plot_bounds: bool = True,
        **line: Any,
    ) -> RiskCoverageDisplay:
        """Draw the curve of a fitted classifier.

        A ``SelectiveClassifier`` is ranked by its own ``abstain_by``, and a dot shows where its
        threshold puts these rows; any other classifier by the ``abstain_by`` given here.
        """
        wrong = np.asarray(estimator.predict(X) != np.asarray(y))
        point = None
        if isinstance(estimator, SelectiveClassifier):
            uncertainty = estimator.uncertainty(X)
            accepted = uncertainty <= estimator.threshold_
            if accepted.any():
                point = (float(accepted.mean()), float(wrong[accepted].mean()))
            name = name or type(estimator.estimator_).__name__
        else:
            check_abstain_by(abstain_by)
            uncertainty = uncertainty_of(estimator, X, abstain_by)
            name = name or type(estimator).__name__
        display = cls(wrong, {name: uncertainty}, operating_point=point)
        return display.plot(ax, plot_bounds=plot_bounds, **line)

    def plot(
        self, ax: Axes | None = None, *, plot_bounds: bool = True, **line: Any
    ) -> RiskCoverageDisplay:
        """Draw on the given axes, or on new ones; ``line`` goes to matplotlib's ``plot``."""
        if importlib.util.find_spec("matplotlib") is None:
            raise InputError("figures need matplotlib: pip install 'varjepa[report]'")
        if ax is None:
            from matplotlib import pyplot as plt

            ax = plt.subplots()[1]
        labels = [f"{name} (AURC {self.aurc[name]:.3f})" for name in self.risk]
        self.lines_ = [ax.plot(self.coverage, risk, **line)[0] for risk in self.risk.values()]
        handles = list(self.lines_)
        if plot_bounds:
            random_risk = np.full_like(self.oracle_risk, self.error_rate)
            handles += ax.plot(self.coverage, random_risk, linestyle="--", color=_GREY)
            handles += ax.plot(self.coverage, self.oracle_risk, linestyle=":", color=_GREY)
            labels.append(f"random (AURC {self.error_rate:.3f})")
            labels.append(f"oracle (AURC {self.oracle_aurc:.3f})")
        if self.operating_point is not None:
            share, risk_here = self.operating_point
            colour = self.lines_[0].get_color()
            handles += ax.plot(share, risk_here, marker="o", linestyle="none", color=colour)
            labels.append(f"answers {share:.0%}, {risk_here:.1%} wrong")
        ax.set(xlabel="Coverage", ylabel="Risk (error rate of answered rows)", xlim=(0, 1))
        ax.set_ylim(bottom=0)
        legend = ax.legend(handles, labels)
        for text in legend.get_texts():
            text.set_parse_math(False)  # names are the user's: a $ is a $
        self.ax_, self.figure_ = ax, ax.figure
        return self
