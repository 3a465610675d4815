"""Whether an audit keeps what it promises, on tables with errors that were put in.

    python -m benchmarks.audit calibration    # a share of 5 % false flags is asked for
    python -m benchmarks.audit defaults       # the same as users have it: each table is fitted
    python -m benchmarks.audit bound          # what could be found in SIM if all were known of it
    python -m benchmarks.audit folds          # one fit, or two halves that score each other
    python -m benchmarks.audit planted        # ten errors in House Prices, half of them levels

``calibration`` and ``folds`` use a small model, since every figure takes many fits or many scored
tables. ``calibration``: a fit per table, then 20 clean tables and 20 with 3 % errors. ``folds``:
three fits per table and seed. Half an hour each on two cores. ``defaults``: 80 fits, an hour or two
on two cores. ``bound``: no fit. ``planted``: one fit for twenty lists of errors.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from scipy.stats import gaussian_kde, norm
from sklearn.metrics import average_precision_score

import varjepa
from benchmarks.ground.errors import spoil
from benchmarks.ground.tables import load
from varjepa import VarTJEPA
from varjepa.audit.fitting import what_to_learn_from
from varjepa.audit.run import p_values
from varjepa.audit.scoring import CellScorer, Scores
from varjepa.demo.sim import SimSettings, draw_sim
from varjepa.environment import describe_environment
from varjepa.files import write_json
from varjepa.metrics.discoveries import ExponentialTail, benjamini_hochberg
from varjepa.settings import Architecture, Training
from varjepa.tables import TableCodec, read_table

RESULTS = Path(__file__).parent / "results"
LEVEL = 0.05
FOLD_TABLES = ("auto_mpg", "penguins", "phoneme", "german_credit")

app = typer.Typer(add_completion=False, no_args_is_help=True)


def small_model(seed: int, steps: int) -> VarTJEPA:
    """A quarter as wide as the default."""
    return VarTJEPA(
        Architecture(d=32, ff=64, predictor_width=32, predictor_ff=64),
        training=Training(max_steps=steps, learning_rate=3e-3),
        random_state=seed,
    )


def draw_factors(rows: int, seed: int) -> pd.DataFrame:
    """Eight numbers and two categories of two factors; a category and a skewed number of none."""
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(rows, 2))
    loadings = np.random.default_rng(99).normal(size=(2, 8))
    numbers = factors @ loadings + 0.5 * rng.normal(size=(rows, 8))
    frame = pd.DataFrame(numbers, columns=[f"x{j}" for j in range(8)])
    noisy = factors + 0.3 * rng.normal(size=(rows, 2))
    frame["two"] = np.where(noisy[:, 0] > 0, "alpha", "beta")
    colours = np.array(["red", "green", "blue", "yellow"])
    frame["four"] = colours[np.digitize(noisy[:, 1], [-1, 0, 1])]
    frame["noise"] = np.array(list("abcde"))[rng.integers(5, size=rows)]
    frame["skewed"] = rng.lognormal(size=rows)
    return frame


def draw_sim_rows(rows: int, seed: int) -> pd.DataFrame:
    """Rows of SIM, the demo's table."""
    frame: pd.DataFrame = draw_sim().to_arrow().to_pandas()
    return frame.sample(rows, random_state=seed).reset_index(drop=True)


DRAWS: dict[str, Callable[[int, int], pd.DataFrame]] = {
    "factors": draw_factors,
    "sim": draw_sim_rows,
}


@app.command("calibration")
def calibration_command(
    tables: list[str] = typer.Option(list(DRAWS), help="factors, sim"),
    seeds: int = 20,
    rows: int = 1000,
    steps: int = 300,
    out: Path = RESULTS / "audit-calibration.json",
) -> None:
    """Flags on clean tables; false share and recall with 3 % errors."""
    figures = {name: calibration(DRAWS[name], seeds, rows, steps) for name in tables}
    about = {"seeds": seeds, "rows": rows, "steps": steps, "level": LEVEL}
    write_json(out, {**about, "figures": figures, "environment": describe_environment("cpu")})


def calibration(
    draw: Callable[[int, int], pd.DataFrame], seeds: int, rows: int, steps: int
) -> dict[str, Any]:
    """Means over seeds, with one model that was fitted to clean rows."""
    scorer = CellScorer(small_model(0, steps).fit(draw(2 * rows, 1000)))
    clean, false, recall, shares = [], [], [], []
    for seed in range(seeds):
        p = calibrated(scorer.score(read_table(draw(rows, seed))))
        clean.append(int((p <= benjamini_hochberg(p, LEVEL)).sum()))
        shares.append([float(np.nanmean(p <= level)) for level in (0.05, 0.01, 0.001)])
        wrong = spoil(draw(rows, seed), seed)
        p = calibrated(scorer.score(read_table(wrong.frame)))
        flagged = p <= benjamini_hochberg(p, LEVEL)
        false.append((flagged & ~wrong.is_wrong).sum() / max(1, flagged.sum()))
        recall.append((flagged & wrong.is_wrong).sum() / wrong.is_wrong.sum())
    return {
        "clean_tables_with_flags": sum(count > 0 for count in clean),
        "clean_p_values_below_05_01_001": np.mean(shares, axis=0).tolist(),
        "false_share": float(np.mean(false)),
        "recall": float(np.mean(recall)),
    }


def calibrated(scores: Scores) -> NDArray[np.float64]:
    """p-values by the scores' own tails."""
    return p_values([ExponentialTail(column) for column in scores.odds.T], scores)


@app.command("defaults")
def defaults_command(
    tables: list[str] = typer.Option(list(DRAWS), help="factors, sim"),
    seeds: int = 20,
    rows: int = 1000,
    out: Path = RESULTS / "audit-defaults.json",
) -> None:
    """Flags of clean tables and of those with 3 % errors, each fitted itself, with defaults."""
    figures = {name: defaults(DRAWS[name], seeds, rows) for name in tables}
    about = {"seeds": seeds, "rows": rows, "level": LEVEL}
    write_json(out, {**about, "figures": figures, "environment": describe_environment("cpu")})


def defaults(draw: Callable[[int, int], pd.DataFrame], seeds: int, rows: int) -> dict[str, Any]:
    """Means over seeds."""
    clean, false, recall = [], [], []
    for seed in range(seeds):
        clean.append(varjepa.audit(draw(rows, seed), top=1, random_state=seed).flagged)
        wrong = spoil(draw(rows, seed), seed)
        cells = varjepa.audit(wrong.frame, top=1, random_state=seed).cells
        cells = cells[cells["flagged"]]
        places = cells["row"], wrong.frame.columns.get_indexer(cells["column"])
        right = int(wrong.is_wrong[places].sum())
        false.append(1.0 - right / max(1, len(cells)) if len(cells) else 0.0)
        recall.append(right / wrong.is_wrong.sum())
    return {
        "clean_tables_with_flags": sum(count > 0 for count in clean),
        "false_share": float(np.mean(false)),
        "recall": float(np.mean(recall)),
    }


@app.command("bound")
def bound_command(
    seeds: int = 20, rows: int = 1000, out: Path = RESULTS / "audit-bound.json"
) -> None:
    """Recall on SIM of log odds from the truth behind it, at a limit that has 5 % false flags."""
    found = np.array([bound(seed, rows) for seed in range(seeds)])
    figures = {"recall": float(found[:, 0].mean()), "average_precision": float(found[:, 1].mean())}
    about = {"seeds": seeds, "rows": rows, "level": LEVEL, "recalls": found[:, 0].tolist()}
    write_json(out, {**about, **figures, "environment": describe_environment("cpu")})


def bound(seed: int, rows: int) -> tuple[float, float]:
    """No method can know more: the centre and noise of every number before it became wrong, how
    errors are made, how often a level is flipped, and where the limit is to be.
    """
    sim, o = draw_sim(), SimSettings()
    whole: pd.DataFrame = sim.to_arrow().to_pandas()
    picked = whole.sample(rows, random_state=seed).index.to_numpy()
    wrong = spoil(draw_sim_rows(rows, seed), seed)
    ambiguous = sim.ambiguity[picked, None] ** o.gamma
    is_noisy = np.zeros(o.numeric, dtype=bool)
    is_noisy[np.argsort(-sim.prototypes.var(axis=0), kind="stable")[: o.noisy]] = True
    centre, noise = sim.centre[picked], np.hypot(o.spread, is_noisy * ambiguous * o.noise)
    x = wrong.frame.iloc[:, : o.numeric].to_numpy(np.float64)
    other_row = np.column_stack([
        gaussian_kde(column)(here) for column, here in zip(sim.numeric.T, x.T, strict=True)
    ])  # fmt: skip
    error = other_row + norm.pdf(x, 10.0 * centre, 10.0 * noise) + norm.pdf(x, -centre, noise)
    numbers = np.log(error / 3.0) - norm.logpdf(x, centre, noise)
    levels = wrong.frame.iloc[:, o.numeric :].to_numpy(object)
    is_own = levels == np.where(sim.flipped[picked], None, sim.categorical[picked])
    flipped = o.flip_rate * ambiguous
    right = np.where(is_own, 1.0 - flipped, np.maximum(flipped, 1e-9) / (len(o.levels) - 1))
    typed = np.isin(levels.astype(str), o.levels, invert=True)
    odds = np.hstack([numbers, np.where(typed, np.inf, -np.log(1.5 * right * len(o.levels)))])
    order = np.argsort(-odds, axis=None)
    hits = wrong.is_wrong.ravel()[order].cumsum()
    passed = np.flatnonzero(hits >= (1.0 - LEVEL) * np.arange(1, len(hits) + 1))
    finite = np.nan_to_num(odds, posinf=1e9).ravel()
    precision = average_precision_score(wrong.is_wrong.ravel(), finite)
    return float(hits[passed[-1]] / wrong.is_wrong.sum()), float(precision)


@app.command("folds")
def folds_command(
    tables: list[str] = typer.Option(list(FOLD_TABLES), help="Of the ground."),
    seeds: int = 2,
    rows: int = 1000,
    steps: int = 500,
    out: Path = RESULTS / "audit-folds.json",
) -> None:
    """Average precision of one fit, with and without the second pass, and of two halves."""
    lines = [
        {"table": name, "seed": seed, **folds(name, seed, rows, steps)}
        for name in tables
        for seed in range(seeds)
    ]
    kinds = ("one_fit", "one_fit_one_pass", "two_halves")
    mean = {kind: float(np.mean([line[kind] for line in lines])) for kind in kinds}
    about = {"rows": rows, "steps": steps, "mean": mean, "figures": lines}
    write_json(out, {**about, "environment": describe_environment("cpu")})


def folds(name: str, seed: int, rows: int, steps: int) -> dict[str, float]:
    """The same errors, scored three times."""
    wrong = spoil(load(name, rows).features, seed)
    table = read_table(wrong.frame)
    codec = TableCodec.fit(table)
    seen = what_to_learn_from(table, codec)
    kinds = {column.name: column.kind for column in codec.schema.modelled}
    places = [table.column_names.index(column) for column in kinds]
    is_wrong = wrong.is_wrong[:, places]

    def precision(*parts: tuple[NDArray[np.int64], NDArray[np.int64]], again: bool = True) -> float:
        p = np.full(is_wrong.shape, np.nan)
        for fitted, asked in parts:
            model = models.setdefault(fitted.tobytes(), small_model(seed, steps))
            if not hasattr(model, "model_"):
                model.set_params(column_kinds=kinds).fit(seen.take(fitted))
            p[asked] = calibrated(CellScorer(model, codec).score(table.take(asked), again))
        known = ~np.isnan(p)
        return float(average_precision_score(is_wrong[known], -np.log(p[known])))

    models: dict[bytes, VarTJEPA] = {}
    everything = np.arange(table.num_rows)
    first, second = np.array_split(np.random.default_rng(seed).permutation(everything), 2)
    return {
        "one_fit": precision((everything, everything)),
        "one_fit_one_pass": precision((everything, everything), again=False),
        "two_halves": precision((first, second), (second, first)),
    }


MOST = 30
"""Cells that a user looks at."""


@app.command("planted")
def planted_command(
    lists: int = 20, steps: int = 400, seed: int = 0, out: Path = RESULTS / "audit-planted.json"
) -> None:
    """How many of ten errors are among the first 30 cells, each list as if it were alone."""
    frame = load("house_prices").features.assign(target=load("house_prices").target)
    rng = np.random.default_rng(seed)
    planted = [plant(frame, number, rng) for number in range(lists)]
    wrong = frame.copy()
    for errors in planted:
        for (row, column), (_, value) in errors.items():
            wrong.loc[row, column] = value
    model = VarTJEPA(training=Training(max_steps=steps), random_state=seed)
    cells = varjepa.audit(wrong, model, top=3000).cells
    places = list(zip(cells["row"], cells["column"], strict=True))
    every = {place for errors in planted for place in errors}
    before = np.cumsum([place not in every for place in places])
    found = dict.fromkeys((*NUMBERS, "price", "level"), 0)
    counts = []
    for errors in planted:
        mine = [k for k, place in enumerate(places) if place in errors]
        top = [places[k] for rank, k in enumerate(mine) if before[k] + rank < MOST]
        counts.append(len(top))
        for place in top:
            found[errors[place][0]] += 1
    planted_of = {kind: sum(k == kind for e in planted for k, _ in e.values()) for kind in found}
    write_json(out, {
        "what": f"House Prices: lists of ten errors, and how many are among the first {MOST} cells",
        "lists": lists, "steps": steps, "seed": seed, "found_of_ten": counts,
        "mean": float(np.mean(counts)), "lists_with_eight": sum(count >= 8 for count in counts),
        "found_by_kind": {kind: [found[kind], planted_of[kind]] for kind in found},
        "environment": describe_environment("cpu"),
    })  # fmt: skip


NUMBERS: dict[str, Callable[[float], float]] = {
    "times ten": lambda value: 10 * value,
    "sign": lambda value: -value,
}


def plant(
    frame: pd.DataFrame, number: int, rng: np.random.Generator
) -> dict[tuple[int, str], tuple[str, Any]]:
    """Four numbers times ten or with another sign, a price over 100, five other levels."""
    is_number = [pd.api.types.is_numeric_dtype(frame[name]) for name in frame.columns]
    numbers, texts = frame.columns[is_number], frame.columns[np.invert(is_number)]
    row = 1279 if number == 0 else int(rng.integers(len(frame)))
    price = 2600 if number == 0 else frame["target"].iloc[row] // 100
    errors: dict[tuple[int, str], tuple[str, Any]] = {(row, "target"): ("price", price)}
    while len(errors) < 10:
        row = int(rng.integers(len(frame)))
        column = str(rng.choice(numbers if len(errors) < 5 else texts))
        value = frame.at[row, column]
        if pd.isna(value) or not value:
            continue  # 0 has no sign
        if len(errors) < 5:
            kind = str(rng.choice(list(NUMBERS)))
            errors[row, column] = kind, NUMBERS[kind](value)
        else:
            others = frame[column].dropna().unique()
            errors[row, column] = "level", rng.choice(others[others != value])
    return errors


if __name__ == "__main__":
    app()
