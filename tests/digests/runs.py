"""Everything that models, metrics and generators give, on one small table: name → array or text.

The digests of these are in ``digests.json``; what they are for is said in ``test_digests.py``.
Names of parameters and methods may change: then this file is edited, and the digests are not.

    python -m tests.digests.runs --write [today/]    (only where numbers are meant to change)

Runs that begin with that are written, all without it. BLAS chooses its kernels by the processor;
``OPENBLAS_CORETYPE`` set to what the file names makes those of the digests.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, is_dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info, threadpool_limits

from paper import simulation, simulation_training
from paper.settings import FIRST_VERSION
from paper.simulation import SIMULATION_VARIANTS, SimulationSettings
from tests.small import fit_small, small
from varjepa import TJEPA, VarTJEPA
from varjepa.demo.sim import SimSettings, draw_sim
from varjepa.environment import describe_environment
from varjepa.estimators import fitting
from varjepa.estimators import selective as thresholds
from varjepa.estimators.embedder import embed_with_uncertainty
from varjepa.estimators.selective import SelectiveClassifier
from varjepa.evaluate.splits import split_rows
from varjepa.metrics import ambiguity, collapse, combination, confidence, imputation, selective
from varjepa.metrics import fidelity as fidelity
from varjepa.metrics import selective as classification
from varjepa.model_folder import describe_arithmetic
from varjepa.models.inference import CELL_QUESTIONS, score_rows
from varjepa.models.simulation import SimulationVarJEPA
from varjepa.randomness import generator_for
from varjepa.training import streamed_rows
from varjepa.training.step import Stepper

FILE = Path(__file__).with_name("digests.json")

Found = dict[str, Any]
"""name → numpy array or text"""

SMALL: dict[str, Any] = {
    "d": 8, "depth": 1, "heads": 2, "ff": 12, "n_cls": 2,
    "predictor_width": 8, "predictor_depth": 1, "predictor_heads": 2, "predictor_ff": 12,
    "epochs": 4, "validate_every": 2, "batch_size": 24, "learning_rate": 0.01,
    "device": "cpu", "precision": "float32", "random_state": 0,
}  # fmt: skip
"""Of 90 rows 81 are trained on: three batches of 24 and one of 9 an epoch."""

IMPUTER = {"imputer_width": 8, "imputer_depth": 1, "imputer_heads": 2, "imputer_ff": 12}

FIRST_LENGTH = {"epochs": 200, "batch_size": 32}
"""what "auto" came to for 81 rows in the first version"""

TODAY: dict[str, Any] = {
    "d": 16, "ff": 24, "predictor_width": 16, "predictor_ff": 24,
    "epochs": 4, "validate_every": 2, "batch_size": 24,
    "device": "cpu", "precision": "float32", "random_state": 0,
}  # fmt: skip
"""Sizes; everything else is what a user gets."""

UNCERTAINTIES = {
    "posterior": ("mean", "q90", "geometric"),
    "predictive": ("mean", "q90", "geometric"),
    "surprise": ("mean", "q90"),
    "nll": ("mean", "q90", "balanced"),
}


# --- the table


def frame(n: int = 90) -> pd.DataFrame:
    """Numbers, a count, two categories, a flag and a date, related, with missing values."""
    rng = np.random.default_rng(7)
    kind = rng.integers(0, 3, n)

    def holed(values: Any, share: float) -> Any:
        return np.where(rng.random(n) < share, None, np.asarray(values, dtype=object))

    a = rng.normal(size=n) + kind
    days = pd.to_timedelta(rng.integers(0, 900, n) + 300 * kind, "D")
    return pd.DataFrame(
        {
            "a": holed(a, 0.1).astype(float),
            "b": 2.5 * a + rng.normal(size=n),
            "c": holed(np.exp(rng.normal(size=n)), 0.2).astype(float),
            "count": rng.poisson(3, n) + kind,
            "colour": holed(np.array(["red", "green", "blue"])[kind], 0.1),
            "shape": holed(rng.choice(["round", "flat", "long", "odd"], n), 0.05),
            "flag": pd.array(holed(a > 0.5, 0.1), dtype="boolean"),
            "born": pd.Series(pd.Timestamp("2019-03-01") + days).mask(rng.random(n) < 0.1),
        }
    )


def labels(n: int = 90) -> NDArray[Any]:
    """Classes that the table tells somewhat; a few are missing."""
    known = np.where(frame(n)["b"] > 1.5, "high", "low").astype(object)
    known[::11] = None
    return known


# --- plain values


def flat(value: Any) -> NDArray[np.float64]:
    """All numbers of dataclasses, tuples, dicts and arrays in their order; None is NaN."""
    if is_dataclass(value):
        value = astuple(value)
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return np.concatenate([np.empty(0), *(flat(item) for item in value)])
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    return np.ravel(np.asarray(math.nan if value is None else value, dtype=np.float64))


def columns(table: Any) -> Found:
    """The columns of a pandas or Arrow table: floats and dates as floats, other kinds as texts."""
    if isinstance(table, pd.DataFrame):
        table = pa.Table.from_pandas(table, preserve_index=False)
    found: Found = {"names": " ".join(table.column_names)}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_temporal(column.type):
            column = column.cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.float64())
        is_float = pa.types.is_floating(column.type)
        found[name] = column.to_numpy() if is_float else "\n".join(map(str, column.to_pylist()))
    return found


def json_parts(value: Any) -> Found:
    """Floats of a JSON value apart from the rest of it, of which every bit is the same anywhere."""
    floats: list[float] = []

    def walk(item: Any) -> Any:
        if isinstance(item, float):
            floats.append(item)
            return "#"
        if isinstance(item, Mapping):
            return {key: walk(item[key]) for key in sorted(item)}
        return [walk(each) for each in item] if isinstance(item, list | tuple) else item

    return {"text": json.dumps(walk(value)), "floats": np.array(floats)}


def codec_parts(codec: dict[str, Any]) -> Found:
    """A codec without what it holds beside the digests' one: tests/tables is about that."""
    later = "bins", "step", "left_out", "rare"
    parts = {
        key: [{k: v for k, v in item.items() if k not in later} for item in codec[key]]
        for key in ("columns", "numeric", "categorical")
    }
    return json_parts({**codec, **parts, "version": 1})


def under(prefix: str, found: Mapping[str, Any]) -> Found:
    return {f"{prefix}/{name}": value for name, value in found.items()}


# --- calls of the estimators


def fit_var_t_jepa(X: Any, y: Any = None, **more: Any) -> VarTJEPA:
    return fit_small(VarTJEPA, X, y, **{**FIRST_VERSION, **SMALL, **IMPUTER, **more})


def fit_today(X: Any, y: Any = None, **more: Any) -> VarTJEPA:
    return fit_small(VarTJEPA, X, y, **{**TODAY, **more})


def fit_t_jepa(X: Any, y: Any = None, **more: Any) -> TJEPA:
    return fit_small(TJEPA, X, y, **{**SMALL, **more})


def trained(model: Any) -> Found:
    """What a fit leaves: all weights in the order of their names, losses, codec."""
    weights = dict(sorted(model.model_.state_dict().items()))
    history = [{k: r[k] for k in sorted(r) if k != "seconds"} for r in model.history_]
    return {
        "weights": np.concatenate([w.numpy().ravel() for w in weights.values()]),
        "weights/names": "\n".join(f"{name} {list(w.shape)}" for name, w in weights.items()),
        "history": flat(history),
        "history/names": "\n".join(map(" ".join, history)),
        "best epoch": np.array(model.best_epoch_),
        "collapse": flat(model.collapse_),
        **under("codec", codec_parts(model.codec_.to_json())),
    }


def transformed(model: Any, X: Any) -> Found:
    found: Found = {}
    for output in ("mean", "cls", "flat"):
        model.set_params(output=output)
        found[f"transform/{output}"] = model.transform(X)
        found[f"transform/{output}/names"] = " ".join(model.get_feature_names_out())
    return found


def embedded(model: VarTJEPA, X: Any) -> Found:
    seen = model.embed(X)
    found: Found = {"mean": seen.mean, "std": seen.std, "per column": seen.std.mean(2)}
    flat_std = seen.std.reshape(len(seen.std), -1)
    found["uncertainty/mean"] = flat_std.mean(1)
    found["uncertainty/q90"] = np.quantile(flat_std, 0.9, axis=1).astype(np.float32)
    found["uncertainty/geometric"] = np.exp(np.log(flat_std).mean(1))
    return under("embed", found) | {"embed/features": " ".join(seen.features)}


def scored(model: VarTJEPA, X: Any) -> Found:
    """Every uncertainty, and the scores of rows."""
    found: Found = {}
    for kind, aggregates in UNCERTAINTIES.items():
        found[f"uncertainty/{kind}"] = model.uncertainty(X, kind)
        found[f"uncertainty/{kind}/splits 3"] = model.uncertainty(X, kind, splits=3)
        for aggregate in aggregates:
            name = f"uncertainty/{kind}/{aggregate}"
            found[name] = model.uncertainty(X, kind, aggregate)
            found[f"{name}/per column"] = per_feature(model, X, kind)
        mean, row, _ = embed_with_uncertainty(model, X, kind)
        mean = mean.reshape(len(mean), len(model.codec_.features), -1)
        for name, part in (("mean", mean), ("row", row), ("column", per_feature(model, X, kind))):
            found[f"embed_and_judge/{kind}/{name}"] = part
    several = {name.split()[0]: u for name, u in model.uncertainties(X).items()}
    found |= under("uncertainties", several)
    found |= under("score_samples", model.score_terms(X))
    return found | {"score_samples": model.score_samples(X), "score": np.array(model.score(X))}


def per_feature(model: VarTJEPA, X: Any, kind: Any) -> NDArray[np.float32]:
    """One number per row and feature, before dates are put together again."""

    def score(networks: Any, rows: Any) -> torch.Tensor:
        return score_rows(networks, rows, (kind,), model.seed_)[kind].per_column()

    return model._compute(model.encode(X), score)


def filled(model: VarTJEPA, X: Any) -> Found:
    found = columns(model.impute(X))
    for i, draw in enumerate(model.impute_samples(X, 3, random_state=1)):
        found |= under(f"draw {i}", columns(draw))
    found |= under("default draw", columns(model.impute_samples(X, 2)[1]))
    found |= under("prior", columns(model.impute(X, z="prior", random_state=1)))
    return under("impute", found)


def drawn(model: VarTJEPA) -> Found:
    given = pd.DataFrame({"colour": ["blue"]})
    calls: dict[str, dict[str, Any]] = {
        "default": {"n": 12},
        "seeded": {"n": 12, "random_state": 1},
        "given": {"n": 12, "given": given, "random_state": 1},
        "prior": {"n": 12, "z": "prior", "random_state": 1},
    }
    found: Found = {}
    for name, call in calls.items():
        found |= under(f"sample/{name}", columns(model.sample(**call)))
    return found


# --- runs of the estimators


def run_var_t_jepa(folder: Path) -> Found:
    X = frame()
    model = fit_var_t_jepa(X)
    found = trained(model) | transformed(model, X) | embedded(model, X) | scored(model, X)
    found |= filled(model, X) | drawn(model)
    found |= under("arrow", columns(model.impute(pa.Table.from_pandas(X))))
    model.save(folder / "saved")
    again = VarTJEPA.load(folder / "saved")
    found |= under("loaded", transformed(again, X) | {"row": again.uncertainty(X, "predictive")})
    many = pd.concat([X] * 7, ignore_index=True)  # more than a block
    found |= under(
        "blocks", {"flat": model.transform(many), "row": model.uncertainty(many, "predictive")}
    )
    return found


def run_labelled() -> Found:
    model = fit_var_t_jepa(frame(), labels())
    found = trained(model) | transformed(model, frame())
    return found | {"uncertainty": model.uncertainty(frame(), "predictive")}


class Stopped(Exception):  # noqa: N818
    """In the middle of a training."""


def run_resumed(folder: Path) -> Found:
    """As the first run, but stopped in the middle of its second epoch."""
    model = fit_resumed(fit_var_t_jepa, folder / "checkpoints")
    found = trained(model) | transformed(model, frame())
    return found | {"uncertainty/predictive": model.uncertainty(frame(), "predictive")}


def fit_resumed(fit: Callable[..., VarTJEPA], folder: Path) -> VarTJEPA:
    """A fit that was stopped after six steps, and another that goes on from there."""
    step = Stepper.step

    def stopping(self: Stepper) -> None:
        if self.done == 6:
            raise Stopped
        step(self)

    more = {"checkpoint_dir": str(folder), "checkpoint_every": 0.0}
    with mock.patch.object(Stepper, "step", stopping):
        try:
            fit(frame(), **more)
        except Stopped:
            pass
        else:
            raise AssertionError("the training was not stopped")
    taken: list[int] = []

    def counting(self: Stepper) -> None:
        taken.append(self.done)
        step(self)

    with mock.patch.object(Stepper, "step", counting):
        model = fit(frame(), **more, resume=True)
    assert taken[0] == 6, "it did not go on from the checkpoint"
    return model


def run_streamed(folder: Path) -> Found:
    """From files that count as too large to hold, in windows of 40 rows."""
    with large_files(folder / "logs") as (logs, table):
        found: dict[str, Any] = {
            "var_t_jepa": fit_var_t_jepa(logs, batch_size=12),
            "t_jepa": fit_t_jepa(logs, batch_size=12),
        }
    parts = [under(k, trained(m) | transformed(m, table)) for k, m in found.items()]
    return parts[0] | parts[1]


@contextmanager
def large_files(logs: Path) -> Iterator[tuple[Path, pa.Table]]:
    """The table in three files, for a while too large to hold; a window has 40 rows."""
    logs.mkdir(parents=True)
    table = pa.Table.from_pandas(frame(), preserve_index=False)
    for i in range(3):
        path = logs / f"part-{i}.parquet"
        pa.parquet.write_table(table.slice(30 * i, 30), path, row_group_size=10)
    row_bytes = 5 * 5 + 9 * 3
    with (
        mock.patch.object(fitting, "MAX_CELLS_IN_MEMORY", 0),
        mock.patch.object(streamed_rows, "WINDOW_BYTES", 40 * row_bytes),
    ):
        yield logs, table


def run_scalings() -> Found:
    found: Found = {}
    for scaling in ("min_max", "standard", "quantile"):
        model = fit_var_t_jepa(frame(), scaling=scaling, epochs=2)
        found |= under(scaling, trained(model) | filled(model, frame()))
    return found


def run_options() -> Found:
    """Most other parameters away from their defaults; tables of other kinds."""
    X, y = frame(), labels()
    options: dict[str, Any] = {
        "n_cls": 1, "context_share": (0.3, 0.7), "target_share": (0.2, 0.4), "targets": 3,
        "max_steps": 11, "epochs": 9, "warm_up_share": 0.3, "weight_decay": 0.05,
        "validation_share": 0.2, "patience": 1, "validate_every": 1, "max_levels": 3,
        "column_kinds": {"count": "categorical"}, "scaling": "standard", "random_state": 5,
    }  # fmt: skip
    var_options = {
        "noise_variance": 0.3, "alpha_rec": 0.5, "alpha_gen": 0.7, "alpha_kl_sx": 1e-2,
        "alpha_kl_z": 1e-3, "alpha_kl_sy": 0.1, "anneal_share": (0.5, 0.5, 0.5), "imputer_kl": 0.1,
    }  # fmt: skip
    numbers = X[["b", "count"]].to_numpy(float)
    many = pd.concat([X] * 7, ignore_index=True)
    models = {
        "var_t_jepa": (fit_var_t_jepa(X, **options, **var_options), X),
        "t_jepa": (fit_t_jepa(X, **options, n_aux=2, momentum=(0.9, 0.99)), X),
        "without imputer": (fit_var_t_jepa(X, y, imputer_depth=0, validation_share=0.0), X),
        "array without holes": (fit_var_t_jepa(numbers, epochs=2), numbers),
        "auto": (fit_var_t_jepa(X, **FIRST_LENGTH, max_steps=5), X),
        "wide batches": (fit_var_t_jepa(many, epochs=1, batch_size=400), X),  # several slices
        "wide batches of t_jepa": (fit_t_jepa(many, epochs=1, batch_size=400), X),
    }
    found: Found = {}
    for name, (model, rows) in models.items():
        found |= under(name, trained(model) | transformed(model, rows))
        if isinstance(model, VarTJEPA):
            of_rows = {
                "row": model.uncertainty(rows, "predictive"),
                "nll": model.uncertainty(rows, "nll"),
                "score_samples": model.score_samples(rows),
            }
            found |= under(name, of_rows)
    model = models["without imputer"][0]
    assert isinstance(model, VarTJEPA)
    return found | under("without imputer", filled(model, X) | drawn(model))


def run_defaults() -> Found:
    """A few steps with every default, so that these do not change unseen.

    Those of ``VarTJEPA`` are the first version's; ``run_today`` has today's.
    """
    found: Found = {}
    plain: dict[str, Any] = {"device": "cpu", "precision": "float32", "random_state": 0}
    for name, model in (
        ("var_t_jepa", small(VarTJEPA, **FIRST_VERSION, **FIRST_LENGTH, **plain, max_steps=4)),
        ("t_jepa", small(TJEPA, **plain, max_steps=4)),
    ):
        model.fit(frame())
        found |= under(name, trained(model) | transformed(model, frame()))
    return found


def run_today(folder: Path) -> Found:
    """Today's defaults but for sizes: numbers in bins, Muon, averaged weights, selection by cells.

    Plain, with labels, resumed, streamed; and the lengths and sizes that "auto" stands for.
    """
    X = frame()
    model = fit_today(X)
    plain = trained(model) | transformed(model, X) | filled(model, X) | drawn(model)
    plain |= under("codec/whole", json_parts(model.codec_.to_json()))
    for kind in (*UNCERTAINTIES, *CELL_QUESTIONS):
        plain[f"uncertainty/{kind}"] = model.uncertainty(X, kind)
    plain["score_samples"] = model.score_samples(X)
    model.save(folder / "today")
    plain["loaded"] = VarTJEPA.load(folder / "today").transform(X)
    found = under("plain", plain)
    found |= under("labelled", trained(fit_today(X, labels())))
    model = fit_resumed(fit_today, folder / "today checkpoints")
    found |= under("resumed", trained(model) | transformed(model, X) | filled(model, X))
    with large_files(folder / "today logs") as (logs, table):
        model = fit_today(logs, batch_size=12)
    found |= under("streamed", trained(model) | transformed(model, table))
    whole = small(VarTJEPA, device="cpu", precision="float32", random_state=0, max_steps=3).fit(X)
    return found | under("defaults", trained(whole) | {"transform": whole.transform(X)})


def run_t_jepa(folder: Path) -> Found:
    found: Found = {}
    for name, y in (("plain", None), ("labelled", labels())):
        model = fit_t_jepa(frame(), y)
        seen = model.embed(frame())
        found |= under(name, trained(model) | transformed(model, frame()))
        found |= under(name, {"embed": seen.mean, "embed/features": " ".join(seen.features)})
        model.save(folder / name)
        found[f"{name}/loaded"] = TJEPA.load(folder / name).transform(frame())
    return found


# --- the simulation study


def run_simulation() -> Found:
    """All ten objectives, two worlds each: weights, the table's rows and the figure's curves."""
    base = SimulationSettings()
    settings = replace(
        base,
        train_rows=110,
        evaluation_rows=80,
        training=replace(base.training, epochs=2, batch=40),
        probe=replace(base.probe, epochs=2, batch=40),
    )
    seeds = [0, 3]
    left_out = ("variant", "latent", "run", "seed", "epochs", "seconds", "environment")
    found: Found = {}
    for variant in SIMULATION_VARIANTS:
        outcome = simulation.run_variant(variant, seeds, settings)
        for kind, rows in (("rows", outcome.table), ("epochs", outcome.epochs)):
            for row in rows:
                row = dict(row)
                name = "/".join(str(row[key]) for key in ("latent", "run") if key in row)
                kept = {key: row[key] for key in sorted(row) if key not in left_out}
                found[f"{variant}/{kind}/{name}"] = flat(kept)
        found[f"{variant}/weights"] = simulation_weights(variant, seeds, settings)
    training, evaluation = simulation.draw_worlds(seeds, settings)
    for name, worlds in (("training rows", training), ("evaluation rows", evaluation)):
        found |= under(name, {k: getattr(worlds, k).numpy() for k in ("x", "y", "c")})
    return found


def simulation_weights(
    variant: str, seeds: list[int], settings: SimulationSettings
) -> NDArray[np.float32]:
    """Of the same training as the study's."""
    rows, _ = simulation.draw_worlds(seeds, settings)
    model = SimulationVarJEPA(settings.model, [generator_for(s, "weights") for s in seeds])
    simulation_training.train(
        model,
        rows.x,
        rows.y,
        SIMULATION_VARIANTS[variant].objective,
        settings.training,
        settings.sigreg,
        [generator_for(s, "training") for s in seeds],
    )
    weights = dict(sorted(model.state_dict().items()))
    return np.concatenate([w.numpy().ravel() for w in weights.values()])


# --- classifiers that abstain, metrics, generators


def run_selective() -> Found:
    X = fit_var_t_jepa(frame(), epochs=2).transform(frame())
    y = np.where(frame()["b"] > 1.5, 1, 0)
    y[::9] = 1 - y[::9]
    many, answers = np.tile(X, (4, 1)), np.tile(y, 4)
    many = many + np.random.default_rng(0).normal(scale=0.05, size=many.shape)
    calls: dict[str, dict[str, Any]] = {
        "coverage": {"coverage": 0.7},
        "margin": {"coverage": 0.5, "abstain_by": "margin", "calibration_share": 0.4},
        "entropy": {"coverage": 0.6, "abstain_by": "entropy", "confidence": 0.8},
        "risk": {"target_risk": 0.4, "confidence": 0.6, "calibration_share": 0.25},
        "nothing certified": {"target_risk": 0.01, "calibration_share": 0.25},
        "function": {"coverage": 0.7, "abstain_by": lambda model, rows: rows[:, 0]},
    }
    found: Found = {}
    for name, call in calls.items():
        classifier = LogisticRegression(solver="newton-cholesky", tol=1e-9)  # to the optimum
        model = SelectiveClassifier(classifier, **call, abstain_label=-1, random_state=0)
        model.fit(many, answers)
        of_one = {
            "calibration": [model.calibration_, model.threshold_, model.calibration_risk_],
            "interval": model.coverage_interval_,
        }
        found |= under(name, {key: flat(value) for key, value in of_one.items()})
        of_rows = {
            "predict": model.predict(many),
            "predict_proba": model.predict_proba(many),
            "decision_function": model.decision_function(many),
            "uncertainty": model.uncertainty(many),
            "accepts": model.accepts(many),
            "predict_or_abstain": model.predict_or_abstain(many),
        }
        found |= under(name, of_rows)
    return found


def run_metrics() -> Found:
    rng = np.random.default_rng(3)
    n = 200
    uncertainty = rng.normal(size=n).round(1)  # with ties
    error = (rng.random(n) < 1 / (1 + np.exp(1.5 - uncertainty))).astype(float)
    truth = rng.integers(0, 3, n)
    predicted = np.where(error > 0, (truth + 1) % 3, truth)
    doubt = rng.random(n)
    p = rng.dirichlet([1, 1, 1], n)
    passes = rng.dirichlet([1, 1, 1], (4, n))
    found: Found = {
        "selective/curve": flat(selective.risk_coverage(error, uncertainty)),
        "selective/scores": flat(selective.selective_scores(error, uncertainty)),
        "selective/continuous": flat(selective.risk_coverage(doubt, uncertainty)),
        "classification": flat(
            list(classification.classification_by_coverage(truth, predicted, uncertainty))
        ),
        "ambiguity": flat(
            [
                ambiguity.spearman(uncertainty, doubt),
                ambiguity.auroc_of_ambiguous(uncertainty, doubt),
                ambiguity.auroc_of_ambiguous(uncertainty, doubt, 0.5),
            ]
        ),
    }
    for coverage in (0.13, 0.5, 0.8, 1.0):
        found[f"selective/at {coverage}"] = flat(
            [
                selective.risk_at(error, uncertainty, coverage),
                selective.accuracy_at(1 - error, uncertainty, coverage),
                selective.rows_kept(n, coverage),
                selective.kept_weights(uncertainty, coverage),
            ]
        )
    for target in (0.02, 0.1, 0.15, 0.2, 0.5):
        found[f"thresholds/{target}"] = flat(
            [
                thresholds.risk_threshold(error, uncertainty, target, 0.9),
                thresholds.risk_threshold(error, rng.random(n), target, 0.9),
                thresholds.coverage_threshold(uncertainty, target),
                thresholds.coverage_interval(n, target, 0.9),
                thresholds.rows_needed(target, 0.9),
            ]
        )
    for name in ("mean_probabilities", "one_minus_msp", "one_minus_margin", "predictive_entropy"):
        function = getattr(confidence, name)
        found |= under(f"posthoc/{name}", {"one": function(p), "several": function(passes)})
    found["posthoc/chance_of_another"] = confidence.chance_of_another(p, truth)
    found["posthoc/expected_entropy"] = confidence.expected_entropy(passes)
    found["posthoc/mutual_information"] = confidence.mutual_information(passes)
    tokens = rng.normal(size=(60, 4, 5)) + np.arange(4)[:, None]
    tokens[:, 1] = 0.5
    found["collapse"] = flat(collapse.diagnose_collapse(tokens))
    found["collapse/rank"] = flat([collapse.effective_rank(tokens.reshape(60, -1)[:5])])
    parts = np.stack([uncertainty, doubt, uncertainty + rng.normal(size=n)], axis=1)
    for name, scores, wrong in (
        ("few", parts, np.arange(n) == 3),
        ("many", np.tile(parts[:, 1:], (3, 1)), np.tile(error, 3)),
        ("two", parts[:, :2], (rng.random(n) < 1 / (1 + np.exp(2 - uncertainty - 3 * doubt)))),
    ):
        fitted = combination.fit_combined_score(scores, wrong)
        found[f"combination/{name}/chosen"] = str(fitted.chosen)
        found[f"combination/{name}/aurc"] = flat(fitted.validation_aurc)
        found[f"combination/{name}/score"] = fitted(scores[:50] * 1.1)
    return found | tables_compared()


def tables_compared() -> Found:
    table = pa.Table.from_pandas(frame().drop(columns=["flag", "born"]), preserve_index=False)
    holed, removed = imputation.remove_cells(table, 0.2, seed=3)
    shuffled = fidelity.shuffle_columns(table, seed=1)
    return {
        **under("holes", columns(holed)),
        "holes/removed": removed,
        "holes/errors": flat(
            imputation.imputation_errors(table, shuffled, removed, table.slice(10))
        ),
        **under("likeness/shuffled", columns(shuffled)),
        "likeness": flat(fidelity.fidelity(table, shuffled, seed=2)),
        "likeness/itself": flat(fidelity.fidelity(table, table)),
    }


def run_generators() -> Found:
    found: Found = {}
    for name, table in (
        ("small", draw_sim(SimSettings(rows=300), seed=4)),
        ("other", draw_sim(SimSettings(rows=120, numeric=9, classes=4, noisy=2, binned=3), seed=1)),
        ("frozen", draw_sim()),
    ):
        for part in ("numeric", "label", "ambiguity", "alternative", "prototypes", "centre"):
            found[f"sim/{name}/{part}"] = getattr(table, part)
        found[f"sim/{name}/flipped"] = table.flipped
        found[f"sim/{name}/categorical"] = "\n".join(map(" ".join, table.categorical))
    for rows, seed in ((100, 0), (997, 5)):
        split = split_rows(rows, seed)
        for part in ("train", "validation", "test"):
            found[f"split/{rows}/{part}"] = getattr(split, part)
    return found


# --- all together


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums of plain torch and of BLAS depend on the number of threads; here it is always one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # so few steps may collapse
            yield
    finally:
        torch.set_num_threads(before)


def all_runs() -> Found:
    """Everything; the name of a run comes first."""
    with one_thread(), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = {
            "var_t_jepa": run_var_t_jepa(folder),
            "labelled": run_labelled(),
            "resumed": run_resumed(folder),
            "streamed": run_streamed(folder),
            "scaling": run_scalings(),
            "options": run_options(),
            "defaults": run_defaults(),
            "today": run_today(folder),
            "t_jepa": run_t_jepa(folder),
            "simulation": run_simulation(),
            "selective": run_selective(),
            "metrics": run_metrics(),
            "generators": run_generators(),
        }
    return {f"{run}/{name}": value for run, found in runs.items() for name, value in found.items()}


def arithmetic() -> dict[str, Any]:
    """What last bits depend on, as it is during the runs."""
    kernels = {str(p.get("architecture")) for p in threadpool_info() if p["user_api"] == "blas"}
    with one_thread():
        return {**describe_arithmetic(), "blas": ", ".join(sorted(kernels))}


def digest(value: Any) -> dict[str, Any]:
    """SHA-256, shape, dtype and a rough summary of an array, or of a text."""
    if isinstance(value, str):
        content = value.encode()
        sha256 = hashlib.sha256(content).hexdigest()
        return {"sha256": sha256, "shape": [len(value)], "dtype": "text", "summary": []}
    array = np.ascontiguousarray(value).reshape(np.shape(value))
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)  # one NaN of many
    if array.dtype.kind not in "biuf":
        raise TypeError(f"neither numbers nor a text: {array.dtype}")
    known = array[np.isfinite(array)].astype(np.float64)
    summary = [known.mean(), known.std(), known.min(), known.max()] if known.size else []
    return {
        "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "summary": [float(f"{number:.6g}") for number in summary],
    }


def all_digests() -> dict[str, dict[str, Any]]:
    return {name: digest(value) for name, value in sorted(all_runs().items())}


def write(only: str = "") -> None:
    """Keep the digests of the code as it is; with ``only``, of runs that begin with it."""
    found: dict[str, Any] = {
        "environment": arithmetic(),
        "processor": describe_environment()["processor"],
        "digests": all_digests(),
    }
    if only:
        recorded = json.loads(FILE.read_text(encoding="utf-8"))
        kept = {k: v for k, v in recorded["digests"].items() if not k.startswith(only)}
        new = {k: v for k, v in found["digests"].items() if k.startswith(only)}
        found = {**recorded, "digests": dict(sorted({**kept, **new}.items()))}
    head = json.dumps({k: found[k] for k in ("environment", "processor")}, indent=1)
    lines = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in found["digests"].items()]
    body = ",\n".join(lines)
    FILE.write_text(f'{head[:-2]},\n "digests": {{\n{body}\n }}\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", nargs="?", const="", help="replace digests.json")
    only = parser.parse_args().write
    if only is not None:
        write(only)
    else:
        sys.stdout.write(json.dumps(all_digests(), indent=1) + "\n")
