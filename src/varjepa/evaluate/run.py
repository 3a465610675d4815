"""Raw features compared with embeddings on one table: represent, predict, score.

    varjepa evaluate table.parquet --target y --out evaluation

Rows are split 70/10/20. Representations are fitted without labels on the training rows, or with
``--transductive`` on all rows (also on those whose target is missing). Choices (penalties, the
predictor that is shown, combined scores, thresholds) use validation rows.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from varjepa.environment import describe_environment
from varjepa.errors import InputError
from varjepa.estimators import TJEPA, VarTJEPA
from varjepa.estimators.summary import model_html
from varjepa.evaluate import scores
from varjepa.evaluate.predictors import (
    PREDICTORS,
    balance_blocks,
    default_predictors,
    fit_predictor,
    require,
)
from varjepa.evaluate.scores import Cell, Floats, Row
from varjepa.evaluate.splits import (
    Index,
    Split,
    Target,
    TaskChoice,
    check_split,
    hide_test_labels,
    read_target,
    split_rows,
)
from varjepa.files import make_folder, read_json, study_folder, write_bytes, write_json
from varjepa.models.inference import LATENT_KINDS
from varjepa.settings import PointTraining, Training, pick_device
from varjepa.tables import EncodedTable, Kind, TableCodec, infer_schema
from varjepa.tables.messages import quoted
from varjepa.tables.writing import table_sha256
from varjepa.version import __version__

Say = Callable[[str], None]
Estimator = TypeVar("Estimator", TJEPA, VarTJEPA)

REPRESENTATIONS = {
    "raw": "raw",
    "pca": "PCA of raw",
    "t_jepa": "T-JEPA",
    "var_t_jepa": "Var-T-JEPA",
    "raw+var_t_jepa": "raw + Var-T-JEPA",
}
"""Names on the command line, and in tables."""
NEED_VAR_T_JEPA = ("var_t_jepa", "raw+var_t_jepa")
PCA_VARIANCE = 0.95
"""share of the variance that the principal components keep"""
MAX_LEVELS = 256
"""rarer levels of a column beyond this many share one input"""


@dataclass(frozen=True, slots=True)
class EvaluateSettings:
    """One comparison."""

    target: str
    """column to predict"""
    task: TaskChoice = "auto"
    """auto: numbers with many values are regressed on, everything else is classified"""
    representations: tuple[str, ...] = tuple(REPRESENTATIONS)
    """which to compare"""
    predictors: tuple[str, ...] = ()
    """which to train on each; empty: :func:`default_predictors`"""
    runs: int = 3
    """training runs of each predictor, on one split and one fitted representation"""
    epochs: int | None = None
    """of T-JEPA and Var-T-JEPA; None: the estimators' own default"""
    transductive: bool = False
    """fit representations on all rows, the paper's protocol; labels of test rows are never used"""
    labels_pick_checkpoint: bool = False
    """training labels choose the epoch of T-JEPA and Var-T-JEPA"""
    kinds: tuple[tuple[str, Kind], ...] = ()
    """columns that are not what they look like"""
    rows: int | None = None
    """evaluate on a random sample of this many rows; None: on all"""
    device: str = "auto"
    """auto, cpu or cuda"""
    seed: int = 0
    """of the split, the representations and the first training of a predictor"""


def check_settings(settings: EvaluateSettings) -> EvaluateSettings:
    """Refuse what cannot be done; the names in the order of their tables, defaults filled in."""
    representations = _ordered("--representations", settings.representations, REPRESENTATIONS)
    chosen = settings.predictors or default_predictors()
    predictors = _ordered("--predictors", chosen, PREDICTORS)
    for name in predictors:
        require(name)
    _ordered("--task", [settings.task], get_args(TaskChoice))
    if settings.labels_pick_checkpoint and settings.transductive:
        raise InputError(
            "--labels-pick-checkpoint needs labels of all rows that a representation is fitted on, "
            "so it does not go with --transductive"
        )
    pick_device(settings.device)
    return replace(settings, representations=representations, predictors=predictors)


def _ordered(option: str, chosen: Collection[str], known: Collection[str]) -> tuple[str, ...]:
    for name in chosen:
        if name not in known:
            raise InputError(f"{option} {name!r} is not one of {', '.join(known)}")
    return tuple(name for name in known if name in chosen)


# --- The flow


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    settings: EvaluateSettings
    target: Target
    split: Split
    cells: list[Cell]
    shown: Cell
    """the cell of the selective tables, chosen on validation rows"""
    curves: tuple[Floats, dict[str, Floats]]
    """coverages, and the risk of the shown cell at each, by uncertainty"""
    models: dict[str, Row]
    """how T-JEPA and Var-T-JEPA were fitted, with what a page shows of them"""
    results: dict[str, Any]
    """what ``evaluate.json`` holds"""


def run_evaluation(
    table: pa.Table,
    name: str,
    folder: Path,
    settings: EvaluateSettings,
    say: Say = lambda line: None,
    verbose: bool = False,
) -> Evaluation:
    """Compare, or continue a comparison, and write ``evaluate.json``."""
    start = time.perf_counter()
    settings = check_settings(settings)
    if settings.rows is not None and settings.rows < table.num_rows:
        order = np.random.default_rng(settings.seed).permutation(table.num_rows)
        table = table.take(np.sort(order[: settings.rows]))
    target = read_target(table, settings.target, settings.task)
    if settings.labels_pick_checkpoint and target.task == "regression":
        raise InputError("--labels-pick-checkpoint needs classes, and the target holds numbers")
    features = table.drop_columns([settings.target])
    if not features.num_columns:
        raise InputError(f"the table has no column besides --target {quoted(settings.target)}")
    infer_schema(features, dict(settings.kinds))  # refuses columns that cannot be encoded
    split = split_rows(len(target.values), settings.seed)
    check_split(target, split)
    say(
        f"{name}: {len(target.values):,} rows, {features.num_columns} columns, target "
        f"{settings.target}: {target.describe()}; {len(settings.representations)} representations "
        f"× {len(settings.predictors)} predictors × {settings.runs} run{'s' * (settings.runs != 1)}"
    )
    if settings.epochs is None and {"t_jepa", *NEED_VAR_T_JEPA} & {*settings.representations}:
        say("fitting T-JEPA and Var-T-JEPA takes longest; fewer --epochs or --rows make it shorter")
    with study_folder(folder):
        parts = FinishedParts(folder / "parts", table, settings)
        comparison = Comparison(features, target, split, settings, parts, say, verbose)
        inputs = comparison.represent()
        latent, models = comparison.latent, comparison.models
        cells = comparison.predict(inputs)
        # the embedding alone where it is among those compared
        first = next((name for name in NEED_VAR_T_JEPA if name in inputs), next(iter(inputs)))
        candidates = [cell for cell in cells if cell.representation == first]
        shown = scores.best_on_validation(candidates, target.values[split.validation])
        areas, curves = scores.risk_curves(shown, latent, target.values, split)
        balanced = {name: each.balanced for name, each in inputs.items()}
        about = {name: getattr(target, name) for name in ("name", "task", "missing")}
        results = {
            "table": name,
            "columns": features.num_columns,
            "settings": {**asdict(settings), "kinds": dict(settings.kinds)},
            "target": {**about, "classes": list(target.classes)},
            "rows": {part: len(getattr(split, part)) for part in ("train", "validation", "test")},
            "constant_guess": scores.constant_guess(target, split),
            "models": {
                name: {k: v for k, v in record.items() if k != "html"}
                for name, record in models.items()
            },
            **scores.score_cells(cells, latent, target, split),
            "chosen_on_validation": {
                "representation": shown.representation,
                "predictor": shown.predictor,
                "score": scores.best_score(shown, latent, target.values, split),
            },
            "areas": areas,
            "thresholds": {
                kind: scores.thresholds(score[split.validation]) for kind, score in latent.items()
            },
            "low_labels": scores.low_label_curve(balanced, target, split, settings.seed),
            "seconds": round(time.perf_counter() - start, 1),
            "environment": describe_environment(str(pick_device(settings.device))),
        }
        write_json(folder / "evaluate.json", results)
    return Evaluation(settings, target, split, cells, shown, curves, models, results)


class FinishedParts:
    """A folder of models and predictions, from which an interrupted evaluation continues.

    ``inputs.json`` says what they were computed from; other inputs are refused. More
    representations, predictors or runs continue from what is there.
    """

    def __init__(self, folder: Path, table: pa.Table, settings: EvaluateSettings) -> None:
        make_folder(folder)
        self.folder = folder
        names = ("target", "task", "seed", "epochs", "transductive", "labels_pick_checkpoint")
        inputs = {
            "table": table_sha256(table),
            **{name: getattr(settings, name) for name in names},
            "kinds": dict(settings.kinds),
            **{
                f"{estimator.__name__}.{name}": repr(value)
                for estimator in (TJEPA, VarTJEPA)
                for name, value in estimator().get_params().items()
            },
            "version": __version__,
        }
        path = folder / "inputs.json"
        if not any(folder.glob("[!.]*")):
            write_json(path, inputs)
        theirs = read_json(path) if path.exists() else None
        for name, ours in inputs.items():
            there = theirs.get(name) if isinstance(theirs, dict) else None
            if there != ours:
                raise InputError(
                    f"{folder} holds results of other settings ({name} {there} there, {ours} "
                    "here); choose another folder"
                )

    def arrays(
        self, name: str, compute: Callable[[], Mapping[str, NDArray[Any]]]
    ) -> dict[str, NDArray[Any]]:
        """The arrays of this name, computed where that has not been done."""
        path = self.folder / f"{name}.safetensors"
        if not path.exists():
            write_bytes(path, save({k: np.ascontiguousarray(v) for k, v in compute().items()}))
        try:
            return load(path.read_bytes())
        except (SafetensorError, OSError) as error:
            raise InputError(f"{path} is damaged; delete {self.folder} and start again") from error


# --- Representations and predictors


@dataclass(frozen=True, slots=True)
class Blocks:
    """Inputs of a predictor: scaled columns, an embedding, or both."""

    parts: tuple[NDArray[np.float32], ...]  # (n, ·) each, NaN where missing

    def rows(self, index: Index) -> NDArray[np.float32]:
        return np.concatenate([part[index] for part in self.parts], axis=1)

    def balanced(self, index: Index) -> Floats:
        """For the linear models on few labels."""
        return balance_blocks([np.nan_to_num(part[index]) for part in self.parts])


def encode_columns(
    fit_rows: EncodedTable, rows: EncodedTable
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Standardised numbers and one-hot levels, and their principal components; both are fitted on
    the unlabelled rows.  # (n, F), (n, C)
    """
    numbers = fit_rows.num.shape[1]

    def matrix(encoded: EncodedTable) -> Floats:
        num = encoded.num.numpy().astype(np.float64)
        num[~encoded.known[:, :numbers].numpy()] = np.nan
        return np.column_stack([num, encoded.cat.numpy()])

    theirs = matrix(fit_rows)
    known = [i for i in range(numbers) if not np.isnan(theirs[:, i]).all()]
    levels = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=MAX_LEVELS)
    encoder = ColumnTransformer(
        [
            ("numbers", StandardScaler(), known),
            ("levels", levels, list(range(numbers, theirs.shape[1]))),
        ],
        sparse_threshold=0.0,
    )
    fitted = np.nan_to_num(encoder.fit_transform(theirs))
    raw: NDArray[np.float32] = encoder.transform(matrix(rows)).astype(np.float32)
    if not np.ptp(fitted, axis=0).any():  # nothing varies: nothing to rotate
        return raw, raw
    pca = PCA(n_components=PCA_VARIANCE, svd_solver="full").fit(fitted)
    return raw, pca.transform(np.nan_to_num(raw)).astype(np.float32)


class Comparison:
    """Representations of the same rows, and predictors on each."""

    def __init__(
        self,
        features: pa.Table,
        target: Target,
        split: Split,
        settings: EvaluateSettings,
        parts: FinishedParts,
        say: Say,
        verbose: bool,
    ) -> None:
        self.target, self.split, self.settings, self.parts = target, split, settings, parts
        self.say, self.verbose = say, verbose
        self.labelled = features.take(target.known) if target.missing else features
        self.fit_rows = features if settings.transductive else self.labelled.take(split.train)
        self.models: dict[str, Row] = {}
        """how T-JEPA and Var-T-JEPA were fitted, with what a page shows of them"""
        self.latent: dict[str, Floats] = {}
        """latent uncertainties of the labelled rows"""

    def represent(self) -> dict[str, Blocks]:
        wanted, kinds = self.settings.representations, dict(self.settings.kinds)
        codec = TableCodec.fit(self.fit_rows, kinds, max_levels=VarTJEPA().max_levels)
        encoded = codec.encode(self.labelled)
        with warnings.catch_warnings():  # of odd cells the codec has warned already
            warnings.filterwarnings("ignore", message="treated as missing")
            raw, components = encode_columns(codec.encode(self.fit_rows), encoded)
            blocks = {"raw": Blocks((raw,)), "pca": Blocks((components,))}
            if "t_jepa" in wanted:
                blocks["t_jepa"] = Blocks((self.embed(self.fitted(TJEPA)),))
            if set(NEED_VAR_T_JEPA) & set(wanted):
                model = self.fitted(VarTJEPA)
                embedding = self.embed(model)
                blocks["var_t_jepa"] = Blocks((embedding,))
                blocks["raw+var_t_jepa"] = Blocks((raw, embedding))
                latent = self.parts.arrays("uncertainties", lambda: self.uncertainties(model))
                self.latent = {kind: latent[kind].astype(np.float64) for kind in LATENT_KINDS}
        return {name: blocks[name] for name in wanted}

    def fitted(self, kind: type[Estimator]) -> Estimator:
        """The model, fitted and saved where that has not been done; its record is written last."""
        settings, name = self.settings, kind.__name__
        folder, path = self.parts.folder / name, self.parts.folder / f"{name}.json"
        if not path.exists():
            training = PointTraining if kind is TJEPA else Training
            model = kind(
                training=training(epochs="auto" if settings.epochs is None else settings.epochs),
                column_kinds=dict(settings.kinds) or None,
                device=settings.device,
                random_state=settings.seed,
                verbose=int(self.verbose),
            )
            start = time.perf_counter()
            has_labels = settings.labels_pick_checkpoint
            model.fit(self.fit_rows, self.target.values[self.split.train] if has_labels else None)
            seconds = time.perf_counter() - start
            model.save(folder)
            record = {
                "seconds": seconds,
                "epochs": len(model.history_),
                "best_epoch": model.best_epoch_,
                "selected_by": model.selected_by_,
                "active_units": model.collapse_.active_units,
                "d": model.embed(self.labelled.slice(0, 1)).mean.shape[-1],
                "html": model_html(model),
            }
            write_json(path, record)
        record = self.models[name] = read_json(path)
        self.say(f"{name}: {record['epochs']} epochs in {record['seconds']:.0f} s")
        return kind.load(folder).set_params(device=settings.device)

    def embed(self, model: TJEPA | VarTJEPA) -> NDArray[np.float32]:
        """Standardised embeddings.  # (n, D · d)"""
        flat = model.embed(self.labelled).mean.reshape(self.labelled.num_rows, -1)
        scaled: NDArray[np.float32] = StandardScaler().fit(flat[self.split.train]).transform(flat)
        return scaled

    def uncertainties(self, model: VarTJEPA) -> dict[str, NDArray[np.float32]]:
        """One of every kind, e.g. "nll mean", by its kind."""
        return {name.split()[0]: u for name, u in model.uncertainties(self.labelled).items()}

    def predict(self, inputs: Mapping[str, Blocks]) -> list[Cell]:
        """Train every predictor on every representation where it has not been done."""
        return [
            self.train(name, predictor, blocks)
            for name, blocks in inputs.items()
            for predictor in self.settings.predictors
        ]

    def train(self, representation: str, predictor: str, blocks: Blocks) -> Cell:
        """A training for every run; without randomness one stands for all."""
        runs, labels = self.settings.runs, hide_test_labels(self.target, self.split)
        train, validation, test = (
            (blocks.rows(rows), labels[rows])
            for rows in (self.split.train, self.split.validation, self.split.test)
        )

        def compute(seed: int) -> dict[str, NDArray[Any]]:
            start = time.perf_counter()
            fitted = fit_predictor(predictor, self.target.task, train, validation, seed)
            arrays = {"validation": fitted.predict(validation[0]), "test": fitted.predict(test[0])}
            if fitted.classes is not None:
                arrays["classes"] = fitted.classes
            return arrays | {"seconds": np.array([time.perf_counter() - start])}

        trained = [
            self.parts.arrays(f"{representation}-{predictor}-{seed}", partial(compute, seed))
            for seed in range(self.settings.seed, self.settings.seed + runs)
            if seed == self.settings.seed or PREDICTORS[predictor].is_random
        ]
        seconds = sum(float(part["seconds"][0]) for part in trained)
        self.say(f"{REPRESENTATIONS[representation]}, {predictor}: {seconds:.0f} s")
        trained *= runs // len(trained)
        on_validation, on_test = (np.stack([p[n] for p in trained]) for n in ("validation", "test"))
        classes = trained[0].get("classes")
        return Cell(representation, predictor, on_validation, on_test, classes, seconds)
