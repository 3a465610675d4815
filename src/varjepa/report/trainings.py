"""What the trainings of representations cost, and how much their seeds matter, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

from varjepa.evaluation.classification import COVERAGES
from varjepa.experiments.downstream_findings import PAPER_COST
from varjepa.experiments.results import Row
from varjepa.experiments.summaries import group
from varjepa.report.beside import header, line, plus_minus, short
from varjepa.report.words import TITLES


def embedding_table(rows: Sequence[Row]) -> list[str]:
    """How much the ranking varies with the seed of the pre-training."""
    mine = [row for row in rows if row["representation"] == "var_t_jepa"]
    lines = []
    for (dataset, setting), here in sorted(group(mine, "dataset", "setting").items()):
        by_seed = group(here, "embedding_seed")
        if len(by_seed) < 2:
            continue
        shared = set.intersection(*({r["predictor"] for r in some} for some in by_seed.values()))
        found = {
            seed: _by_coverage([row for row in some if row["predictor"] in shared])
            for (seed,), some in sorted(by_seed.items())
        }
        for seed, means in found.items():
            lines.append(line([dataset, setting, str(seed), *map(short, means)]))
        spread = [_spread(values) for values in zip(*found.values(), strict=True)]
        lines.append(line([dataset, setting, f"all {len(found)}", *spread]))
    if not lines:
        return []
    coverages = [f"{c:.0%}" for c in COVERAGES]
    titles = ["dataset", "setting", "pre-training seed", *coverages, "100% → 50%"]
    return [
        "",
        "## Pre-training seeds",
        "",
        "Accuracy by coverage, mean over the predictors that all seeds have, and over their own "
        "seeds; the last line of each: mean ± standard deviation over pre-training seeds.",
        "",
        *header(titles),
        *lines,
    ]


def _by_coverage(rows: Sequence[Row]) -> list[float | None]:
    """Mean accuracy at each coverage, and what is gained from the first to the last."""
    groups = group(rows, "coverage")
    means = [
        fmean(row["accuracy"] for row in groups[c,]) if (c,) in groups else None for c in COVERAGES
    ]
    first, last = means[0], means[-1]
    return [*means, None if first is None or last is None else last - first]


def _spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if len(known) < max(2, len(values)):
        return "–"
    return plus_minus(fmean(known), stdev(known))


def training_table(trainings: Sequence[Row]) -> list[str]:
    """What each embedding cost, and what it looks like."""
    if not trainings:
        return []
    lines = [
        line(
            [
                row["dataset"],
                TITLES[row["model"]],
                row["setting"],
                str(row["seed"]),
                f"{row['seconds']:.0f}",
                f"{row['best_epoch']}/{row['epochs']}",
                *(f"{row[n]:.3g}" for n in ("scale", "effective_rank", "varying_share")),
            ]
        )
        for row in trainings
    ]
    first = [row for row in trainings if row["seed"] == 0]
    sums = "; ".join(
        f"{TITLES[model]}, setting {setting}, {len(rows)} "
        f"dataset{'s' if len(rows) > 1 else ''}: {_minutes(rows)}"
        for (model, setting), rows in sorted(group(first, "model", "setting").items(), reverse=True)
    )
    titles = ["dataset", "model", "setting", "seed", "seconds", "epoch kept", "scale", "rank"]
    return [
        "",
        "## Trainings",
        "",
        f"First seeds together: {sums}. All {len(trainings)} trainings: {_minutes(trainings)}. "
        f"(The paper's: {PAPER_COST}.) Scale: mean norm of a token; rank: effective rank of the "
        "embeddings; varying: share of their mean square that varies across rows (all of the first "
        "1,000 rows). A small share with a good rank is a large common part, not a collapse.",
        "",
        *header([*titles, "varying"]),
        *lines,
    ]


def _minutes(rows: Sequence[Row]) -> str:
    return f"{sum(row['seconds'] for row in rows) / 60:.1f} min"
