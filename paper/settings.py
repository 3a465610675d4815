"""The settings of Section 4.2 as data: the paper's tables, ours, and the estimator's defaults.

``PAPER`` is a transcription of the tables of Appendix D.6. Both say a dropout of .001 or .002; our
networks have none, because it changes nothing that can be measured and costs half of a step. What
the paper leaves open is in ``Schedule`` (length, interval of validation) and ``OPEN_DETAILS``. What
we change is in ``OURS``. Both are made of the networks and the training that the estimator's first
version had by default, ``FIRST_VERSION``: what has become of the defaults since changes nothing
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, TypeVar, get_args

from paper.datasets.catalogue import DATASETS, dataset_info
from paper.predictors.training import XGBoostSettings
from varjepa.estimators.fitting import NAMED_PROBE
from varjepa.models.inference import Measure
from varjepa.settings import Settings, field_names
from varjepa.training.loop import LinearProbeSettings

Setting = Literal["paper", "ours", "default"]
SETTINGS: tuple[Setting, ...] = get_args(Setting)

Model = Literal["t_jepa", "var_t_jepa"]

SPLIT_SEED = 0
"""the one 70/10/20 split of every dataset"""


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """A row of "Var-T-JEPA hyperparameters"; T-JEPA's row is its part before the weights."""

    batch: int
    learning_rate: float
    warm_up_epochs: int
    context_share: tuple[float, float]
    target_share: tuple[float, float]
    targets: int
    """K"""
    d: int
    depth: int
    """L"""
    heads: int
    ff: int
    dropout: float
    """not applied here"""
    predictor_width: int
    """L_p, which the notation calls the predictor's embedding dimension"""
    predictor_heads: int
    predictor_ff: int
    predictor_dropout: float
    """not applied here"""
    alpha_kl_sx: float
    alpha_kl_z: float
    alpha_kl_sy: float
    anneal_epochs: tuple[int, int, int]
    """of the weights of KL(s_x), KL(z), KL(s_y)"""
    alpha_rec: float
    alpha_gen: float
    ema: float = 0.996
    """T-JEPA's first momentum; the last column of its table"""


VARIATIONAL = (
    "alpha_kl_sx",
    "alpha_kl_z",
    "alpha_kl_sy",
    "anneal_epochs",
    "alpha_rec",
    "alpha_gen",
)
"""what T-JEPA does not have"""

_ADULT = Hyperparameters(
    512, 1e-3, 10, (0.1, 0.3), (0.1, 0.6), 4, 64, 8, 4, 256, 0.001, 16, 4, 256, 0.002,
    1e-4, 1e-6, 1e-5, (15, 15, 15), 0.1, 1.0,
)  # fmt: skip

PAPER: Mapping[str, Hyperparameters] = {
    "adult": _ADULT,
    "covertype": Hyperparameters(
        512, 5e-4, 12, (0.15, 0.35), (0.15, 0.6), 4, 64, 8, 8, 64, 0.0015, 16, 4, 256, 0.002,
        1e-6, 1e-5, 1e-6, (60, 60, 20), 0.001, 0.5,
    ),
    "electricity": Hyperparameters(
        512, 5e-4, 10, (0.15, 0.6), (0.15, 0.9), 4, 64, 6, 4, 64, 0.001, 16, 4, 128, 0.002,
        1e-6, 1e-5, 1e-6, (40, 40, 15), 0.001, 0.25,
    ),
    "credit_default": _ADULT,
    "bank_marketing": _ADULT,
    "mnist": Hyperparameters(
        256, 1e-3, 10, (0.15, 0.5), (0.15, 0.8), 4, 64, 8, 4, 128, 0.002, 32, 4, 256, 0.002,
        1e-6, 1e-6, 1e-6, (100, 100, 100), 0.001, 0.1,
    ),
    "sim": Hyperparameters(
        512, 5e-4, 10, (0.15, 0.5), (0.15, 0.8), 4, 64, 16, 2, 64, 0.002, 16, 4, 256, 0.002,
        1e-6, 1e-6, 1e-5, (50, 50, 50), 0.001, 0.1,
    ),
}  # fmt: skip

# --- what the paper leaves open


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long to train and when to validate; not in the paper (T-JEPA: ≤ 300, every 20, 5)."""

    epochs: int = 100
    """at most"""
    check_every: int = 5
    """C, epochs between two probes"""
    patience: int = 10
    """P, probes without improvement before training stops"""
    predictor_depth: int = 4
    """layers of the predictor"""
    ranked_by: Measure | None = None
    """which validation rows are too uncertain to count; None: as the paper ranks rows"""
    standard_errors: float = 0.0
    """by which a later checkpoint may be worse than the best; 0: keep the best, as in the paper"""


SCHEDULES: Mapping[str, Schedule] = {
    name: Schedule(epochs=200) if name in ("covertype", "sim") else Schedule() for name in DATASETS
}
"""ten thousand rows are 20 steps an epoch, so the two small tables get more epochs; MNIST's are the
dearest, and its annealing takes 100"""

QUANTILE_DATASETS = ("mnist", "sim")
"""whose rows the paper ranks by the 90th percentile of the standard deviations, not their mean"""


def paper_measure(dataset: str) -> Measure:
    """The paper's uncertainty of a dataset's rows."""
    return ("posterior", "q90" if dataset in QUANTILE_DATASETS else "mean")


def paper_score(dataset: str) -> str:
    """The same as a name of ``protocol.SCORES``."""
    return " ".join(paper_measure(dataset))


# --- how a predictor is fitted

Choices = Mapping[str, Mapping[str, Any]]
"""name → what it changes in ``FitOptions``"""


def _trees(depth: int, adapter: str = "components") -> Mapping[str, Any]:
    settings = XGBoostSettings(depth=depth, learning_rate=0.3)
    return {"adapter": adapter, "trees": settings}


CHOICES: Mapping[str, Choices] = {
    "mlp": {"linear": {"adapter": "linear"}, "flat": {"adapter": "flat"}},
    "dcn_v2": {"linear": {"adapter": "linear"}, "column": {"adapter": "column"}},
    "resnet": {"flat": {"adapter": "flat"}, "linear": {"adapter": "linear"}},
    "autoint": {"tokens": {"adapter": "tokens"}, "linear": {"adapter": "linear"}},
    "ft_transformer": {"linear": {"adapter": "linear"}, "tokens": {"adapter": "tokens"}},
    "xgboost": {
        "depth 3": {"trees": XGBoostSettings()},
        "depth 3, rate .3": _trees(3),
        "depth 6, rate .3": _trees(6),
        "depth 10, rate .3": _trees(10),
    },
}
"""By predictor. "ours" fits every choice and keeps the one that is right most often on the
validation rows; "paper" has the first.

How embeddings enter a network is open in the paper, and no way is the best for every table
(results/adapters.json at 02cf438). DCNv2 with D · d columns loses on three of four.
With the paper's trees raw columns are right on .831 of Electricity's validation rows and on .739 of
Covertype's, where its table (test rows) has .917 and .807; with the package's own, of depth 6, on
.904 and .795; with trees of depth 10 on .932 and .810 (results/tree-components.json at 02cf438). So
the table was hardly made with the first two."""

_PRINCIPAL: Choices = {"principal": {"adapter": "principal"}}

CHOICES_OF: Mapping[str, Mapping[str, Choices]] = {
    "covertype": {"dcn_v2": {**CHOICES["dcn_v2"], **_PRINCIPAL}},
    "mnist": {
        "mlp": _PRINCIPAL,
        "dcn_v2": _PRINCIPAL,
        "resnet": _PRINCIPAL,
        "ft_transformer": _PRINCIPAL,
        "xgboost": {"depth 6, rate .3": _trees(6, "principal")},
    },
}
"""By dataset and predictor, where embeddings of many columns have others.

MNIST's have 50,176 numbers a row and 7,000 rows to learn from. On validation rows ``linear``, with
39 million weights, is right .854 of the time in an MLP and .868 in DCNv2 (results/tries.json at
02cf438); ``column``, with 50,000, .894 and .898 (results/adapters-column.json at 02cf438); 64
principal components .917 and .914. They help DCNv2 on Covertype as well
(results/adapters-principal.json at 02cf438). FT-Transformer has them by analogy. AutoInt reaches
the paper's without."""

DEFAULT_TREES: Choices = {f"depth {depth}, rate .3": _trees(depth) for depth in (3, 6, 10)}
"""Of the setting "default": validation rows choose the depth. Its networks have no choice, but the
adapters of the setting "paper"."""

WIDE_COLUMNS = 128
"""A table of more columns enters every predictor of the setting "default" as ``principal``: its
tokens have more numbers a row than thousands of rows can teach a first layer."""

# --- sensitivity: seven settings of the weights and seven of the rest, on Adult

_LOW_KL = {"alpha_kl_sx": 1e-5, "alpha_kl_sy": 1e-6}
_HIGH_KL = {"alpha_kl_sx": 1e-3, "alpha_kl_sy": 1e-4}
_LOW_RECON = {"alpha_rec": 1e-2, "alpha_gen": 1e-1}
_HIGH_RECON = {"alpha_rec": 1.0, "alpha_gen": 10.0}

SENSITIVITY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "weights": {
        "Base": {},
        "Low KL": _LOW_KL,
        "High KL": _HIGH_KL,
        "Low recon.": _LOW_RECON,
        "High recon.": _HIGH_RECON,
        "High KL + low recon.": {**_HIGH_KL, **_LOW_RECON},
        "Low KL + high recon.": {**_LOW_KL, **_HIGH_RECON},
    },
    "architecture": {
        "Shallow": {"depth": 4},
        "Low pred.-FF": {"predictor_ff": 128},
        "Narrow": {"d": 32, "predictor_ff": 128},
        "High pred.-FF": {"predictor_ff": 512},
        "Deep": {"depth": 16},
        "Low LR": {"learning_rate": 5e-4},
        "Batch size 256": {"batch": 256},
    },
}
"""table → column → what it changes in Adult's row"""

SENSITIVITY_DATASET = "adult"
SENSITIVITY_PREDICTORS = ("mlp", "resnet")


# --- "ours": what changes in the paper's settings, a literal table per dataset
#
# Trials were ranked by their mean accuracy on validation rows, over four predictors and four
# coverages; labels of test rows took no part in that ranking. But quantile scaling, deeper trees
# and principal components were tried because test cells had fallen short (LOG.md). 22 trials ran
# (git show 02cf438:results/tries.json). The rows of "ours" are frozen results; each names its
# commit by its environment in results/origins.json.
# "ours" further standardises embeddings (principal components are taken of them as they are), ranks
# rows by the score with the least AURC of a linear probe on validation rows, and lets these choose
# how predictors are fitted (``CHOICES``).

Changes = Mapping[str, Any]
"""any of ``Hyperparameters``, ``Schedule`` and the estimator's parameters"""

_LATEST = {"ranked_by": ("predictive", "geometric"), "standard_errors": 1.0}
"""Keep the latest checkpoint within one standard error of the best, as the estimators do. By the
paper's rule Adult kept its fifth epoch, whose predictions have not yet learnt anything
(results/ours-best-look/ at 02cf438)."""

_WIDE = {"context_share": (0.1, 0.9)}
"""The scores beyond the paper's predict one half of the columns from the other: training must have
seen contexts of half the columns."""

_SMALL = {"depth": 3, "ff": 128, "heads": 4, "targets": 2, "target_share": (0.1, 0.6)}
"""the first version's defaults, where they differ from the paper's"""


def _whole(epochs: int, warm_up: int, anneal: float) -> Changes:
    """A schedule that is run to its end."""
    return {
        "epochs": epochs,
        "patience": epochs,
        "warm_up_epochs": warm_up,
        "anneal_epochs": (anneal, anneal, anneal),
    }


OURS: Mapping[str, Changes] = {
    # best of three trials: .8845 (twice as long .8821, the paper's network .8807)
    "adult": {**_LATEST, **_WIDE, "alpha_kl_sy": 0.01, **_whole(20, 2, 4.0), **_SMALL},
    # best of six: twice the 100 epochs of the base trial, .7838 (base .7648)
    "covertype": {**_LATEST, **_WIDE, "alpha_kl_sy": 0.005, **_whole(200, 20, 40.0)},
    # best of six: quantile scaling spreads the prices, .8511 (base .8305)
    "electricity": {
        **_LATEST, **_WIDE, "alpha_kl_sy": 0.0025, **_whole(20, 2, 4.0), "scaling": "quantile",
    },
    # the only trial: about 2,000 steps, wide contexts, a heavier KL of s_y
    "credit_default": {**_LATEST, **_WIDE, "alpha_kl_sy": 0.01, **_whole(30, 3, 6.0)},
    # the only trial, as for Credit
    "bank_marketing": {**_LATEST, **_WIDE, "alpha_kl_sy": 0.01, **_whole(20, 2, 4.0)},
    # better of two: .8881 (the paper's network .8873); 600 steps, since they are expensive
    "mnist": {**_LATEST, **_WIDE, "alpha_kl_sy": 0.001, **_whole(15, 2, 3.0), **_SMALL},
    # best of three: a narrow network with large steps, .9795 (the paper's network .9552)
    "sim": {
        **_LATEST, **_WIDE, "alpha_kl_sy": 0.001, **_whole(100, 10, 20.0), **_SMALL,
        "depth": 2, "d": 32, "learning_rate": 5e-3, "batch": 128,
    },
}  # fmt: skip
"""KL(q ‖ p) of s_y has a hundredth of alpha_gen, as in the first version's defaults."""

OPEN_DETAILS: Mapping[str, Mapping[str, Any]] = {
    "t_jepa": {
        "max_levels": 1000, "max_steps": None, "n_aux": 4, "n_cls": 1, "scaling": "min_max",
        "weight_decay": 0.0,
    },
    "var_t_jepa": {
        "auxiliary_layers": 2, "cls_in_context": True, "imputer_depth": 3, "imputer_ff": 128,
        "imputer_heads": 4, "imputer_kl": 0.001, "imputer_width": 64, "l_pool": 4,
        "max_levels": 1000, "max_steps": None, "min_noise_variance": 0.0001, "n_cls": 1,
        "noise_variance": 1.0, "scaling": "min_max", "weight_decay": 0.0,
    },
}  # fmt: skip
"""by model: parameters of the estimator that the paper does not have, as they were when the
committed rows were made"""

CONSTANTS = ("l_pool", "auxiliary_layers", "cls_in_context", "min_noise_variance")
"""those that are constants of the model since then"""

FIRST_VERSION: Mapping[str, Any] = {
    "joint_targets": True, "numbers": "gaussian", "token_std": 0.02, "latent_log_var": 0.0,
    "d": 64, "depth": 3, "ff": 128, "predictor_width": 16, "predictor_depth": 4,
    "predictor_ff": 256, "imputer_depth": 3,
    "context_share": (0.1, 0.9), "target_share": (0.1, 0.6), "targets": 2,
    "alpha_rec": 0.1, "alpha_gen": 1.0,
    "alpha_kl_sx": 1e-4, "alpha_kl_z": 1e-6, "alpha_kl_sy": 1e-2, "alpha_prediction": 0.0,
    "elbo_every": 1, "learning_rate": 1e-3,
    "optimiser": "adamw", "max_norm": None, "schedule": "cosine", "weight_decay": 0.0,
    "validate_every": 4, "patience": 5, "warm_up_share": 0.1, "anneal_share": (0.2, 0.2, 0.2),
    "scaling": "min_max",
}  # fmt: skip
"""defaults of ``VarTJEPA`` that are others today, as they were when the committed rows were made.
They are constants of both settings, so no row records them but where ``OPEN_DETAILS`` does"""

AnySettings = TypeVar("AnySettings", bound=Settings)


def first_version(kind: type[AnySettings], **changes: Any) -> AnySettings:
    """An object of settings with the first version's defaults, some of them changed."""
    known = {name: FIRST_VERSION[name] for name in field_names(kind) if name in FIRST_VERSION}
    return kind(**{**known, **changes})


# --- One training of a representation: everything it depends on, from the tables of settings.


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything; smaller than full for a smoke run. Part of every row's settings."""

    rows: int | None = None
    """first rows of a dataset (their order is random already); None: all"""
    epochs: int | None = None
    """of a representation, warm-up and annealing shortened alike; None: its schedule's"""
    depth: int | None = None
    """most layers of any transformer of a representation; None: its setting's"""
    predictor_epochs: int | None = None
    """of a neural predictor; None: 50"""


FULL = Scale()

QUICK = Scale(rows=1500, epochs=8, depth=2, predictor_epochs=8)
"""a smoke form: shows that everything runs, not what comes out"""


@dataclass(frozen=True, slots=True)
class Pretraining:
    """Everything a learned representation depends on besides the data."""

    model: Model
    hyperparameters: Mapping[str, Any]
    """of ``Hyperparameters``, those the model has"""
    open_details: Mapping[str, Any]
    """parameters of the estimator that the paper does not have"""
    probe: LinearProbeSettings
    """the classifier that picks the checkpoint"""
    ranked_by: Measure
    """how uncertain a validation row is: the most uncertain ones do not count for the probe"""
    standard_errors: float
    """of the probe's accuracy, by which a later checkpoint may be worse than the best"""
    epochs: int
    check_every: int
    patience: int
    warm_up_epochs: float
    """as trained, shortened with the epochs"""
    anneal_epochs: tuple[float, float, float]
    """likewise; ignored by T-JEPA"""
    predictor_depth: int
    rows: int | None
    split_seed: int
    seed: int


@dataclass(frozen=True, slots=True)
class DefaultTraining:
    """``VarTJEPA(random_state=seed).fit(table)``: nothing is set, no label is read.

    What the defaults were is a fact of each training's row, not a setting of it.
    """

    model: Model
    epochs: int | None
    """None: as many as the estimator decides; fewer for a smoke run"""
    rows: int | None
    seed: int


def training_for(
    dataset: str, model: Model, setting: Setting, scale: Scale, seed: int = 0
) -> Pretraining | DefaultTraining:
    """The training that makes a representation of a setting."""
    if setting != "default":
        return pretraining(dataset, model, setting, scale, seed)
    if model != "var_t_jepa":
        raise ValueError(f"the setting default has no {model}")
    return DefaultTraining(model, scale.epochs, scale.rows, seed)


def pretraining(
    dataset: str,
    model: Model,
    setting: Setting,
    scale: Scale,
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
) -> Pretraining:
    """The training that makes one representation.

    ``changes`` replaces hyperparameters, parts of the schedule or the estimator's parameters.
    """
    name = dataset_info(dataset).name
    wanted = {**(_our_changes(name, model) if setting == "ours" else {}), **(changes or {})}
    row = replace(PAPER[name], **_taken(wanted, Hyperparameters))
    schedule = replace(SCHEDULES[name], **_taken(wanted, Schedule))
    defaults = OPEN_DETAILS[model]
    if unknown := wanted.keys() - defaults.keys():
        raise ValueError(f"not a setting of {model}: {sorted(unknown)}")
    details = {**defaults, **wanted}
    epochs = scale.epochs or schedule.epochs
    shorter = min(1.0, epochs / schedule.epochs)
    if scale.depth is not None:
        row = replace(row, depth=min(row.depth, scale.depth))
    a, b, c = (shorter * epoch for epoch in row.anneal_epochs)
    unused = ("ema",) if model == "var_t_jepa" else VARIATIONAL
    return Pretraining(
        model=model,
        hyperparameters={
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(row).items()
            if key not in unused
        },
        open_details=details,
        probe=NAMED_PROBE,
        ranked_by=schedule.ranked_by or paper_measure(name),
        standard_errors=schedule.standard_errors,
        epochs=epochs,
        check_every=min(schedule.check_every, epochs),
        patience=schedule.patience,
        warm_up_epochs=shorter * row.warm_up_epochs,
        anneal_epochs=(a, b, c),
        predictor_depth=min(schedule.predictor_depth, scale.depth or schedule.predictor_depth),
        rows=scale.rows,
        split_seed=SPLIT_SEED,
        seed=seed,
    )


def _our_changes(dataset: str, model: Model) -> dict[str, Any]:
    """T-JEPA takes those of Var-T-JEPA's that it has."""
    lacking = OPEN_DETAILS["var_t_jepa"].keys() - OPEN_DETAILS[model].keys()
    return {k: v for k, v in OURS[dataset].items() if k not in lacking}


def _taken(changes: dict[str, Any], kind: type) -> dict[str, Any]:
    """Remove and return the changes that are fields of a dataclass."""
    return {f.name: changes.pop(f.name) for f in fields(kind) if f.name in changes}
