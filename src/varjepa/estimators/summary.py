"""A fitted model in words: the card in its folder, and what a notebook shows of it.

Neither gives a value that only few rows have. Ranges leave out one row in a hundred at either end
and are rounded to a twentieth of their width; levels are named if at least twenty training rows and
one in a hundred have them.
"""

from __future__ import annotations

import html
import math
import re
import textwrap
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from varjepa.files import write_text
from varjepa.model_folder import describe_arithmetic
from varjepa.settings import expand
from varjepa.tables.columns import VALUE, CategoricalFeature, Column, NumericFeature
from varjepa.tables.messages import printable, shortened
from varjepa.tables.values import ELAPSED
from varjepa.training.loop import HELD_OUT_CELLS

if TYPE_CHECKING:
    from varjepa.estimators.base import TableEstimator

CARD = "README.md"
MARK = "<!-- written by varjepa: saving the model again replaces this file -->"
"""First line of a card; a file without it is the user's own."""

LEAST_ROWS, LEAST_SHARE = 20, 0.01
"""Training rows that a level must have to be named, and the share of them."""
LEVELS = 8
"""names of a column at most"""
COLUMNS = 200
"""columns of a card at most"""
SHOWN = 40
"""columns in a notebook at most"""

RULE = (
    "Ranges run from the 1st to the 99th percentile, rounded. A level is named if at least "
    f"{LEAST_ROWS} training rows and {LEAST_SHARE:.0%} of them have it."
)

_ODD = re.compile(r"[\\`*\[\]<>|&~$@]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.", re.IGNORECASE)
"""What Markdown would not show as it is, links that begin with https: or www. included. A single
underscore within a word means nothing."""


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    name: str
    kind: str
    values: str
    missing: float


# --- columns


def summarise_columns(estimator: TableEstimator) -> list[ColumnSummary]:
    """Every column of the table, those that are not modelled included."""
    codec = estimator.codec_
    numbers = {n.column: n for n in codec.numeric if n.part in (VALUE, ELAPSED)}
    categories = {category.column: category for category in codec.categorical}
    summaries = []
    for column in codec.schema.columns:
        if column.left_out is not None:
            words = f"not modelled: {column.left_out.reason}"
            missing = column.left_out.missing_share
        elif column.name in numbers:
            number = numbers[column.name]
            words, missing = _range(number, column), number.marginal.missing_share
        else:
            category = categories[column.name]
            words, missing = _levels(category), category.missing_share
        summaries.append(ColumnSummary(column.name, column.kind, words, missing))
    return summaries


def _range(number: NumericFeature, column: Column) -> str:
    quantiles = number.marginal.quantiles
    if not quantiles:
        return "no value"
    ends = number.scaler.from_unit(np.array([quantiles[1], quantiles[-2]])).tolist()
    if column.unit is not None:
        dates = np.array(ends, dtype=np.int64).astype(f"M8[{column.unit}]").astype("M8[M]")
        low, high = map(str, dates)
    else:
        low, high = (_rounded(float(end), float(ends[1]) - float(ends[0])) for end in ends)
    return low if low == high else f"{low} to {high}"


def _rounded(value: float, width: float) -> str:
    """To the power of ten below a twentieth of a width.

    Examples:
        >>> _rounded(32.123, 27.5), _rounded(2007.0, 2.0), _rounded(123456.0, 70000.0)
        ('32', '2007', '123000')
        >>> _rounded(-0.0312, 0.1), _rounded(1e12, 3e12)
        ('-0.031', '1e+12')
    """
    if not (0.0 < width < math.inf and math.isfinite(value)):
        return f"{value:.3g}"
    digits = -math.floor(math.log10(width / 20.0))
    return f"{float(f'{round(value, digits):.12g}') + 0.0:.12g}"


def _levels(category: CategoricalFeature) -> str:
    counts = np.array(category.levels.counts)
    least = max(LEAST_ROWS, LEAST_SHARE * (counts.sum() + category.rare))
    order = [int(i) for i in np.argsort(-counts, kind="stable") if counts[i] >= least][:LEVELS]
    names = [category.levels.texts[i].as_py() for i in order]
    total = f"{len(counts):,} level{'s' * (len(counts) != 1)}"
    if not names:
        return total
    more = ", …" * (len(counts) > len(names))
    return f"{total}: {', '.join(shortened(printable(name), 40) for name in names)}{more}"


# --- training

LEVEL_OFF = (0.05, 0.002)
"""The last quarter of a training has levelled off if it gained less than this share of the whole
gain, or of the score itself."""

LEAST_VALIDATIONS = 4
"""Fewer do not show that a score has levelled off."""

LEAST_GAIN = 0.05
"""Nats a cell by which a good fit predicts better than each column's own distribution: chance in
the validation rows moves the score by about half of it."""


def changed_settings(estimator: TableEstimator) -> dict[str, Any]:
    """Parameters that are not the defaults, nested ones as ``training__epochs``."""
    plain = type(estimator)()
    own, usual = estimator.get_params(deep=False), plain.get_params(deep=False)
    kinds = estimator.settings_kinds
    changed = {k: v for k, v in own.items() if k not in kinds and v != usual[k]}
    for name in kinds:
        mine, theirs = (expand(name, one.settings(name)) for one in (estimator, plain))
        changed |= {key: value for key, value in mine.items() if value != theirs[key]}
    return changed


def training_words(estimator: TableEstimator) -> str:
    """Whether the fit is good, and whether longer training would help, in sentences."""
    collapse, features = estimator.collapse_, estimator.codec_.features
    if collapse.collapsed:
        return "not good: the embeddings have collapsed, so that all rows look alike to the model."
    name, training = estimator.selected_by_, estimator.settings("training")
    score, otherwise = validation_score(estimator), "no score says how good they are"
    if "accuracy" in name and score is not None:
        otherwise = f"a linear probe on them has a {name} of {score:.2f}"
    return describe_training(
        [r[name] for r in estimator.history_ if r.get(name) is not None],
        estimator.cell_baseline() if name == HELD_OUT_CELLS else None,
        otherwise,
        training.patience,
        training.max_steps is not None or training.time_limit is not None,
        [features[j].name for j in collapse.silent_features],
    )


def describe_training(
    scores: Sequence[float],
    baseline: float | None,
    otherwise: str,
    patience: int,
    is_capped: bool,
    silent_columns: Sequence[str] = (),
) -> str:
    """Whether a fit whose embeddings have not collapsed is good, and whether longer would help.

    Args:
        scores: of the validations, in order; higher is better.
        baseline: what each column's own distribution would score; None: nothing to compare with.
        otherwise: what to say where there is no baseline.
        patience: validations without improvement that end a training.
        is_capped: whether a number of steps or seconds may have ended the training.
        silent_columns: columns that vary and leave no trace in the embedding.
    """
    if len(scores) < 2:
        return (
            f"too short to tell whether it is good: {len(scores)} validation"
            f"{'s' * (len(scores) != 1)}. Allow more epochs, steps or time."
        )
    is_good, quality = True, f"the embeddings have not collapsed; {otherwise}"
    if baseline is not None:
        gain = max(scores) - baseline
        is_good = gain >= LEAST_GAIN
        quality = (
            "held-out cells are predicted "
            f"{'better' if is_good else 'no better'} than by each column's own distribution "
            f"({gain:+.2f} nats a cell), and the embeddings have not collapsed"
        )
    if silent_columns:
        names = ", ".join(silent_columns[:5]) + (" …" if len(silent_columns) > 5 else "")
        quality += f"; these columns leave no trace in the embedding: {names}"
    best = max(scores)
    without_gain = len(scores) - 1 - list(scores).index(best)
    before = max(scores[: -max(1, len(scores) // 4)])
    least = max(LEVEL_OFF[0] * (best - scores[0]), LEVEL_OFF[1] * abs(best))
    is_rising = without_gain < patience and best - before > least
    if is_rising or (is_capped and not without_gain):
        return (
            "unfinished: the validation score was still improving when training ended. Allow more "
            f"epochs, steps or time. So far, {quality}."
        )
    verdict = "poor" if not is_good else "fair" if silent_columns else "good"
    if baseline is None and is_good and not silent_columns:
        verdict = "usable"
    longer = "The validation score has levelled off: longer training would hardly help."
    if without_gain >= patience:
        longer = "The validation score no longer improved: longer training will not help."
    elif len(scores) < LEAST_VALIDATIONS:
        longer = "Too few validations to tell whether longer training would help."
    return f"{verdict}: {quality}. {longer}"


def wrapped(label: str, text: str) -> str:
    """A labelled text in lines of at most 80 columns, as a terminal shows it."""
    indent = " " * (len(label) + 2)
    return textwrap.fill(
        f"{label}: {printable(text)}",
        80,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def validation_score(estimator: TableEstimator) -> float | None:
    """Of the epoch that was selected."""
    for record in estimator.history_:
        if record.get("epoch") == estimator.best_epoch_:
            value = record.get(estimator.selected_by_)
            return None if value is None else float(value)
    return None


def validation_words(estimator: TableEstimator) -> str:
    """The score that selected an epoch, and what it measures."""
    name, score = estimator.selected_by_, validation_score(estimator)
    means = {HELD_OUT_CELLS: "mean log-likelihood of held-out cells of validation rows, in nats"}
    value = "not measured" if score is None else f"{score:.4g}"
    return f"{means.get(name, f'validation score “{name}”')}: {value}"


# --- the card


def model_card(estimator: TableEstimator) -> str:
    """A page in Markdown about a model; the same model gives the same text."""
    columns, settings = summarise_columns(estimator), changed_settings(estimator)
    lines = [
        MARK,
        "",
        f"# A {type(estimator).__name__} model",
        "",
        "Learned from the rows of a table; labels, if there were any, only picked the epoch. "
        "`manifest.json` does not cover this file, and loading the model does not read it.",
        "",
        "## What it was trained on",
        "",
        f"{len(columns):,} columns. {RULE}",
        "",
        "| column | kind | values | missing |",
        "| --- | --- | --- | --- |",
        *(
            f"| {_text(c.name)} | {c.kind} | {_escape(c.values)} | {c.missing:.1%} |"
            for c in columns[:COLUMNS]
        ),
    ]
    if len(columns) > COLUMNS:
        lines += ["", f"{len(columns) - COLUMNS:,} more columns are not shown."]
    lines += ["", "## How", ""]
    if settings:
        lines += ["Settings that are not the defaults:", ""]
        lines += [f"- {_text(k)}: {_text(repr(v))}" for k, v in settings.items()]
    else:
        lines += ["All settings are the defaults."]
    lines += [
        "",
        f"Trained for {len(estimator.history_)} epochs; epoch {estimator.best_epoch_} was "
        f"selected by {_text(estimator.selected_by_)}.",
        "",
        "## Quality on validation rows",
        "",
        f"- {_escape(validation_words(estimator))}",
        f"- training: {_escape(training_words(estimator))}",
        "",
        "## Limits",
        "",
        *(f"- {line}" for line in _limits(estimator)),
        "",
        "## Versions",
        "",
        *(f"- {name}: {_text(str(value))}" for name, value in describe_arithmetic().items()),
    ]
    return "\n".join(lines) + "\n"


def write_card(estimator: TableEstimator, folder: Path) -> None:
    """Put the card into a model folder; a README.md that varjepa did not write stays."""
    path = folder / CARD
    with suppress(OSError):
        if path.is_file() and not path.read_bytes().startswith(MARK.encode()):
            warnings.warn(f"{path} is not a card that varjepa wrote; it stays", stacklevel=3)
            return
    write_text(path, model_card(estimator))


def _limits(estimator: TableEstimator) -> list[str]:
    lines = [
        "It knows the table that it was fitted to. Rows of another origin get numbers as well, "
        "which nobody has checked.",
        "Levels that training did not have, or too rarely to keep, count as missing.",
        "This page has no value of a single row. `codec.json` has: the smallest and the largest "
        "value of each number, and the names of all levels.",
    ]
    if len(getattr(estimator, "neighbours_", ())):
        lines.append("`config.json` holds training rows, coded, to compare new rows with.")
    if estimator._has_uncertainty:
        lines.append(
            "Uncertainties say how predictable or how typical a row is, not where a classifier is "
            "wrong. Intervals are calibrated on validation rows of the same table."
        )
    return lines


def _text(text: str) -> str:
    return _escape(shortened(printable(text), 80))


def _escape(text: str) -> str:
    r"""Text that Markdown shows as it is.

    >>> print(_escape("a|b <img> *c* [d](e) www.f https://g"))
    a\|b \<img\> \*c\* \[d\](e) www\.f https\://g
    >>> print(_escape("body_mass_g _i_ __init__"))
    body_mass_g \_i\_ \_\_init\_\_
    """
    return _ODD.sub(r"\\\g<0>", text)


# --- notebooks

_CELL = "text-align:left;padding:.15em .8em .15em 0;border-bottom:1px solid rgba(128,128,128,.3)"


def model_html(estimator: TableEstimator) -> str:
    """What a notebook shows of a fitted model: HTML without scripts, with drawings as SVG."""
    columns, scores = summarise_columns(estimator), estimator.selected_by_
    shown = [(c.name, c.kind, c.values, f"{c.missing:.1%}") for c in columns[:SHOWN]]
    more = f"<p>{len(columns) - SHOWN:,} more columns.</p>" if len(columns) > SHOWN else ""
    settings = ", ".join(f"{k}={v!r}" for k, v in changed_settings(estimator).items())
    facts = [
        f"epoch {estimator.best_epoch_} of {len(estimator.history_)} was selected; "
        f"{validation_words(estimator)}",
        f"training: {training_words(estimator)}",
        f"settings: {settings or 'the defaults'}",
    ]
    panels = "".join(
        curve_svg(name, estimator.history_, estimator.best_epoch_)
        for name in dict.fromkeys(("loss", scores))
    )
    table = html_table(("column", "kind", "values", "missing"), shown)
    lines = "".join(f"<p>{_html(fact, 600)}</p>" for fact in facts)
    return (
        f"<div><b>{type(estimator).__name__}</b>, fitted to {len(columns):,} columns"
        f"{lines}{panels}<details open><summary>Columns</summary>{table}{more}</details></div>"
    )


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A small table; every text is escaped."""

    def line(cells: Sequence[str], tag: str) -> str:
        inner = "".join(
            f'<{tag} style="{_CELL}"><bdi>{_html(cell, 160)}</bdi></{tag}>' for cell in cells
        )
        return f"<tr>{inner}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"


def curve_svg(name: str, history: Sequence[dict[str, Any]], best_epoch: int) -> str:
    """A figure of every epoch that has it, with its ends, and a mark at the selected one.

    Where that is neither of the ends, its figure is given too.
    """
    points = [(r["epoch"], r[name]) for r in history if r.get(name) is not None and "epoch" in r]
    points = [(float(e), float(v)) for e, v in points if math.isfinite(float(v))]
    if len(points) < 2:
        return ""
    width, height, edge = 260.0, 80.0, 6.0
    epochs, values = zip(*points, strict=True)
    low, high = min(values), max(values)

    def x(epoch: float) -> float:
        span = (epochs[-1] - epochs[0]) or 1.0
        return edge + (epoch - epochs[0]) / span * (width - 2 * edge)

    def y(value: float) -> float:
        return height - edge - (value - low) / ((high - low) or 1.0) * (height - 2 * edge)

    line = " ".join(f"{x(e):.1f},{y(v):.1f}" for e, v in points)
    selected = min(max(float(best_epoch), epochs[0]), epochs[-1])
    between = dict(points[1:-1]).get(float(best_epoch))
    by_way_of = "" if between is None else f", {between:.4g} in epoch {best_epoch}"
    label = f"{_html(name, 60)} by epoch: first {values[0]:.4g}{by_way_of}, last {values[-1]:.4g}"
    mark = (
        f'<line x1="{x(selected):.1f}" x2="{x(selected):.1f}" y1="0" y2="{height:.0f}" '
        'stroke="currentColor" stroke-opacity=".4" stroke-dasharray="3 3"/>'
    )
    return (
        '<figure style="display:inline-block;margin:.4em 1em .4em 0">'
        f"<figcaption>{label}</figcaption>"
        f'<svg role="img" aria-label="{label}" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">{mark}'
        f'<polyline points="{line}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
        "</svg></figure>"
    )


MAP_ROWS = 1000
"""points of a map at most"""


def map_svg(mean: NDArray[np.float32]) -> str:
    """Rows as points: the first two principal components of their embeddings.  # (n, D, d)"""
    rows = mean[:: -(-len(mean) // MAP_ROWS)].reshape(-1, mean[0].size).astype(np.float64)
    if len(rows) < 3 or not np.isfinite(rows).all():
        return ""
    left, scale, _ = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    points = (left * scale)[:, :2]
    if points.shape[1] < 2 or np.ptp(points) < 1e-9:
        return ""
    width, edge = 260.0, 6.0
    points = edge + (points - points.min(0)) / np.ptp(points, axis=0).max() * (width - 2 * edge)
    height = float(points[:, 1].max()) + edge
    share = (scale[:2] ** 2).sum() / (scale**2).sum()
    label = f"two principal components of {len(rows):,} rows, {share:.0%} of the variance"
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.8"/>' for x, y in points)
    return (
        f'<figure style="margin:.4em 0"><figcaption>{label}</figcaption>'
        f'<svg role="img" aria-label="{label}" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" fill="currentColor" fill-opacity=".45">{dots}'
        "</svg></figure>"
    )


def _html(text: str, longest: int) -> str:
    return html.escape(shortened(printable(text), longest))
