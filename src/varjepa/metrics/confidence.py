"""Uncertainties read off a classifier's probabilities (the baselines of Appendix B.3).

Every function takes probabilities p of one classifier, ``(n, classes)``, or of several passes,
``(passes, n, classes)``: dropout passes or members of an ensemble, whose mean is then p. It returns
one number per row, larger for less certain rows. The paper's names:

===============  ====================================================================
probe entropy    ``predictive_entropy`` of a linear probe
probe MSP        ``one_minus_msp`` of the same probe
MC dropout       ``predictive_entropy`` of a dropout network's 20 passes
deep ensemble    ``predictive_entropy`` of five networks trained from different seeds
===============  ====================================================================
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr

Floats = NDArray[np.float64]


def mean_probabilities(probabilities: ArrayLike) -> Floats:
    """Mean over passes, if there are any.  # (n, classes)"""
    p = _checked(probabilities)
    return p.mean(0) if p.ndim == 3 else p


def one_minus_msp(probabilities: ArrayLike) -> Floats:
    """1 − max_c p_c, one minus the maximum softmax probability.  # (n,)

    Summed from the other classes, so that rows whose largest probability rounds to 1 keep their
    order instead of becoming ties.
    """
    return np.sort(mean_probabilities(probabilities), axis=-1)[:, :-1].sum(-1)


def chance_of_another(probabilities: ArrayLike, answer: ArrayLike) -> Floats:
    """1 − p_answer, for the answer of another classifier.  # (n,)

    Shape: ``answer (n,)``, class numbers. An ensemble that is certain of another class than the
    classifier has no entropy, and yet says that the classifier is wrong.

    Examples:
        >>> chance_of_another([[0.9, 0.1], [0.9, 0.1]], [0, 1]).round(3).tolist()
        [0.1, 0.9]
    """
    p = mean_probabilities(probabilities)
    return np.where(np.arange(p.shape[-1]) == np.asarray(answer)[:, None], 0.0, p).sum(-1)


def one_minus_margin(probabilities: ArrayLike) -> Floats:
    """1 − (p_1 − p_2), of the two most likely classes.  # (n,)

    Examples:
        >>> one_minus_margin([[0.5, 0.25, 0.25]]).tolist()
        [0.75]
    """
    p = np.sort(mean_probabilities(probabilities), axis=-1)
    runner_up = p[:, -2] if p.shape[-1] > 1 else 0.0
    return p[:, :-1].sum(-1) + runner_up  # 1 − p_1 + p_2, without the rounding of 1 − p_1


def predictive_entropy(probabilities: ArrayLike) -> Floats:
    """−Σ_c p_c log p_c in nats: the total uncertainty.  # (n,)

    Examples:
        >>> predictive_entropy([[1.0, 0.0], [0.5, 0.5]]).round(3).tolist()
        [0.0, 0.693]
    """
    return entr(mean_probabilities(probabilities)).sum(-1)


def expected_entropy(passes: ArrayLike) -> Floats:
    """Mean entropy of the passes: the aleatoric part, which they agree on.  # (n,)"""
    return entr(_several(passes)).sum(-1).mean(0)


def mutual_information(passes: ArrayLike) -> Floats:
    """Predictive entropy − expected entropy: how much the passes disagree.  # (n,)

    Examples:
        >>> agree, disagree = [[0.5, 0.5], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]]
        >>> mutual_information(np.stack([agree, disagree], axis=1)).round(3).tolist()
        [0.0, 0.693]
    """
    # never negative in exact arithmetic; rounding can leave −1e-17 where all passes agree
    return np.maximum(predictive_entropy(passes) - expected_entropy(passes), 0.0)


def _several(passes: ArrayLike) -> Floats:
    p = _checked(passes)
    if p.ndim != 3:
        raise ValueError(f"expected probabilities (passes, n, classes), not {p.shape}")
    return p


def _checked(probabilities: ArrayLike) -> Floats:
    p = np.asarray(probabilities, dtype=np.float64)
    if p.ndim not in (2, 3) or 0 in p.shape:
        raise ValueError(
            f"expected probabilities (n, classes) or (passes, n, classes), not {p.shape}"
        )
    # float32 softmax over many classes sums to 1 within a few 1e-6
    if not np.isfinite(p).all() or (p < 0).any() or (np.abs(p.sum(-1) - 1) > 1e-3).any():
        raise ValueError("probabilities must be finite, at least 0 and sum to 1 in each row")
    return p
