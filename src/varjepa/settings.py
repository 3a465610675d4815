"""Every hyperparameter, in frozen objects that go unchanged from the constructor to the network.

``Architecture`` says how large the networks are, ``Objective`` what is minimised, ``Training`` how
it is optimised and validated, and ``Run`` where checkpoints and logs of one fit go. ``TJEPA`` has
its own ``PointArchitecture`` and ``PointObjective``. Wrong types and impossible values are refused
when an object is made. To change one field of a fitted or unfitted estimator, use scikit-learn's
``set_params(training__learning_rate=1e-3)``.
"""

from __future__ import annotations

import math
import os
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from pathlib import Path
from reprlib import repr as short_repr
from typing import TYPE_CHECKING, Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from varjepa.errors import InputError

if TYPE_CHECKING:
    import torch

Precision = Literal["auto", "float32", "bfloat16"]
Output = Literal["flat", "mean", "cls"]
OUTPUTS: tuple[Output, ...] = get_args(Output)

MAY_BE_ZERO = ("depth", "predictor_depth", "imputer_depth", "n_aux")
"""Every other integer counts something that there is at least one of."""


class Settings:
    """What all settings share: their fields are checked against their annotations."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for name, hint in type_hints(type(self)).items():
            value = plain(getattr(self, name))
            object.__setattr__(self, name, value)
            if not fits(value, hint):
                # a value from a file may be of any length
                raise InputError(f"{name} must be {in_words(hint)}, not {short_repr(value)}")
            least = 0 if name in MAY_BE_ZERO else 1
            if int in (hint, *get_args(hint)) and isinstance(value, int) and value < least:
                raise InputError(f"{name} must be at least {least}, not {value}")
        self.check()

    def check(self) -> None:
        """Refuse values that do not go together."""

    def __repr__(self) -> str:
        """Only what differs from the defaults, as scikit-learn shows an estimator's parameters."""
        values = ((field, getattr(self, field.name)) for field in fields(self))  # type: ignore[arg-type]
        own = [f"{field.name}={value!r}" for field, value in values if value != field.default]
        return f"{type(self).__name__}({', '.join(own)})"


# --- how large the networks are


@dataclass(frozen=True, slots=True, repr=False)
class EncoderSettings(Settings):
    """Encoders and predictor, which every JEPA has."""

    d: int = 64
    """width of tokens and of every latent; a multiple of ``heads`` (d = d_z = D_hid)"""
    depth: int = 3
    """transformer layers of the encoders (L)"""
    heads: int = 4
    """attention heads of the encoders (H)"""
    ff: int = 128
    """feed-forward width of the encoders"""
    predictor_width: int = 16
    """token width of the predictor (L_p)"""
    predictor_depth: int = 4
    """layers of the predictor; not in the paper"""
    predictor_heads: int = 4
    """attention heads of the predictor (H_p)"""
    predictor_ff: int = 256
    """feed-forward width of the predictor (ff_p)"""
    n_cls: int = 1
    """learned tokens in front of the encoders (N_CLS); not in the paper"""

    def check(self) -> None:
        _check_multiple(self, "d", "heads")
        _check_multiple(self, "predictor_width", "predictor_heads")

    @classmethod
    def for_rows(cls, rows: int) -> Self:
        """The default sizes for a table of so many training rows."""
        return cls()


@dataclass(frozen=True, slots=True, repr=False)
class Architecture(EncoderSettings):
    """The networks of :class:`varjepa.VarTJEPA`."""

    d: int = 128
    """width of tokens and of every latent; a multiple of ``heads`` (d = d_z = D_hid)"""
    depth: int = 1
    """transformer layers of the encoders (L)"""
    ff: int = 128
    """feed-forward width of the encoders"""
    predictor_width: int = 128
    """token width of the predictor (L_p); the paper's is narrow, 16 or 32"""
    predictor_depth: int = 2
    """layers of the predictor; not in the paper"""
    predictor_ff: int = 128
    """feed-forward width of the predictor (ff_p)"""
    joint_targets: bool = False
    """whether the predictor's target tokens attend to each other, as in the paper. If they do, what
    is predicted of a cell depends on which other cells are asked for; and where values are missing
    for a reason, to be asked for one that always was missing before misleads about the others"""
    numbers: Literal["bins", "gaussian"] = "bins"
    """tokens and likelihood of numbers. "bins": a piecewise-linear encoding over the column's
    quantiles; a probability for every bin, and a mean. "gaussian": the paper's, one linear map for
    all columns and a Gaussian with one variance"""
    token_std: float = 0.5
    """standard deviation of tokens and positions before training; 0.02 is usual"""
    latent_log_var: float = -4.0
    """log-variance of the latents before training: they carry little noise at first; 0: the plain
    initialisation, with a variance of about 1"""
    noise_variance: float = 1.0
    """variance of numbers around their mean before training (σ_x², σ_y²)"""
    imputer_width: int = 64
    """token width of the imputer, a second predictor outside the ELBO; not in the paper"""
    imputer_depth: int = 0
    """layers of the imputer; 0: none, the predictor itself predicts cells"""
    imputer_heads: int = 4
    """attention heads of the imputer"""
    imputer_ff: int = 128
    """feed-forward width of the imputer"""

    def check(self) -> None:
        EncoderSettings.check(self)
        _check_multiple(self, "imputer_width", "imputer_heads")
        if self.imputer_depth and self.numbers == "bins":
            raise InputError('an imputer needs numbers="gaussian": set imputer_depth to 0')
        if not self.token_std > 0.0:
            raise InputError(f"token_std must be above 0, not {self.token_std}")
        if not self.noise_variance > MIN_NOISE_VARIANCE:
            raise InputError(
                f"noise_variance must be above {MIN_NOISE_VARIANCE}, not {self.noise_variance}"
            )

    @classmethod
    def for_rows(cls, rows: int) -> Self:
        """Half as wide for few rows: cells are filled about as well, in half the time."""
        return cls() if rows > FEW_ROWS else cls(d=64, predictor_width=64)


FEW_ROWS = 2000
"""Training rows up to which the default networks are half as wide."""


@dataclass(frozen=True, slots=True, repr=False)
class PointArchitecture(EncoderSettings):
    """The networks of :class:`varjepa.TJEPA`."""

    n_aux: int = 4
    """learned auxiliary tokens of the predictor (N_aux); not in the paper"""


MIN_NOISE_VARIANCE = 1e-4
"""Floor of σ_x² and σ_y²: near-constant columns drive them to 0."""


# --- what is minimised


@dataclass(frozen=True, slots=True, repr=False)
class MaskSettings(Settings):
    """Shares of the features that a context and a target keep, and how many targets there are."""

    context_share: tuple[float, float] = (0.1, 0.9)
    """smallest and largest share of the columns in a context"""
    target_share: tuple[float, float] | Literal["rest"] = (0.1, 0.6)
    """smallest and largest share of the columns in a target; "rest": all that the context leaves"""
    targets: int = 2
    """target views per row and step (K; the paper has 4)"""

    def check(self) -> None:
        for name in ("context_share", "target_share"):
            if (share := getattr(self, name)) == "rest":
                continue
            low, high = share
            if not 0.0 <= low <= high <= 1.0:
                raise InputError(f"{name} must be two ascending shares in [0, 1], not {low, high}")


@dataclass(frozen=True, slots=True, repr=False)
class Objective(MaskSettings):
    """Masks and weights of the loss; the KL weights are the final, annealed ones."""

    context_share: tuple[float, float] = (0.2, 0.9)
    """smallest and largest share of the columns in a context"""
    target_share: tuple[float, float] | Literal["rest"] = "rest"
    """smallest and largest share of the columns in a target; "rest": all that the context leaves"""
    targets: int = 1
    """target views per row and step (K; the paper has 4)"""
    elbo_every: int = 4
    """one row in so many of a batch is in the ELBO, and counts so many times; the prediction of
    values learns from all rows. 1: every row, as in the paper"""
    alpha_rec: float = 0.1
    """weight of −log p(x | s_x)"""
    alpha_gen: float = 0.5
    """weight of −log p(w | s_w)"""
    alpha_kl_sx: float = 1e-6
    """weight of KL(q(s_x) ‖ N(0, I))"""
    alpha_kl_z: float = 1e-6
    """weight of KL(q(z) ‖ N(0, I))"""
    alpha_kl_sy: float = 1e-4
    """weight of KL(q(s_y) ‖ p(s_y | s_x, z))"""
    alpha_prediction: float = 1.0
    """weight of −log p(y | s_y) at the mean of p(s_y | s_x, z): the predictor learns from values
    too; 0: the ELBO alone, as in the paper"""
    imputer_kl: float = 1e-3
    """weight of KL(q ‖ r) in the imputer's own loss, which trains the imputer alone"""

    def check(self) -> None:
        MaskSettings.check(self)
        weights = [name for name in field_names(Objective) if name.startswith("alpha_")]
        _check_not_negative(self, (*weights, "imputer_kl"))


@dataclass(frozen=True, slots=True, repr=False)
class PointObjective(MaskSettings):
    """Masks and moving average of T-JEPA."""

    momentum: tuple[float, float] = (0.996, 1.0)
    """momentum of the target encoder's moving average, first and last step, linear between them"""

    def check(self) -> None:
        MaskSettings.check(self)
        first, last = self.momentum
        if not 0.0 <= first <= last <= 1.0:
            raise InputError(f"momentum must be two ascending shares in [0, 1], not {first, last}")


# --- how it is optimised and validated


@dataclass(frozen=True, slots=True, repr=False)
class Training(Settings):
    """Optimisation, length, and how validation rows pick the checkpoint."""

    epochs: int | Literal["auto"] = "auto"
    """maximum number of epochs; "auto": about 1,600 steps. Of a streamed
    table an epoch is a window of its rows, and the next epoch continues from there"""
    max_steps: int | None = None
    """maximum number of optimiser steps, whatever ``epochs`` says; None: no limit"""
    time_limit: float | None = None
    """seconds after which training ends with its best checkpoint so far; how far it comes by then
    depends on the machine; None: no limit"""
    batch_size: int | Literal["auto"] = "auto"
    """rows per step; "auto": an eighth of the training rows, within 32 to 256"""
    optimiser: Literal["muon", "adamw"] = "muon"
    """"muon": Muon for the matrices of linear maps and AdamW for everything else"""
    learning_rate: float = 3e-3
    """peak rate of AdamW; Muon's is twice that"""
    max_norm: float | None = 1.0
    """largest norm of a step's gradient, to which a larger one is scaled; None: no limit"""
    schedule: Literal["average", "cosine"] = "average"
    """after a linear warm-up. "average": from step 60 on the rate falls as 1 / √step, and the
    weights used are a running average, so that no length has to be known beforehand; "cosine":
    falls to 0 at the last step"""
    warm_up_share: float = 0.01
    """share of the training in which the rate rises"""
    anneal_share: tuple[float, float, float] = (0.1, 0.1, 0.1)
    """shares of the training in which the KL weights of s_x, z and s_y rise"""
    weight_decay: float = 0.01
    """on matrices only"""
    precision: Precision = "auto"
    """of the networks: "auto" is bfloat16 on a GPU and float32 elsewhere; latents and losses are
    float32 always"""
    validate_every: int | Literal["auto"] = "auto"
    """epochs between two validations; "auto": about 50 steps"""
    patience: int = 6
    """validations without improvement before training stops"""
    validation_share: float = 0.1
    """share of the rows held out to pick the checkpoint; 0: the training rows pick it"""
    discard_share: float = 0.2
    """with class labels: share of the most uncertain validation rows that do not count (the paper's
    filtered accuracy); T-JEPA, which has no uncertainty, discards none"""
    rank_by: tuple[str, str] = ("posterior", "mean")
    """kind and aggregate of the uncertainty that ranks these rows"""
    standard_errors: float = 1.0
    """a later checkpoint wins if its accuracy is not worse than the best by more than this many
    standard errors: a linear probe is as good early on, predictions of values take the whole
    training; 0: the best wins, as in the paper"""

    def check(self) -> None:
        for name in ("warm_up_share", "validation_share", "discard_share"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise InputError(f"{name} must be in [0, 1), not {getattr(self, name)}")
        if not all(0.0 <= share <= 1.0 for share in self.anneal_share):
            raise InputError(
                f"anneal_share must be three shares in [0, 1], not {self.anneal_share}"
            )
        for name in ("learning_rate", "max_norm"):
            if getattr(self, name) is not None and not getattr(self, name) > 0.0:
                raise InputError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.time_limit is not None and not self.time_limit > 0.0:
            raise InputError(f"time_limit must be above 0 seconds, not {self.time_limit}")
        _check_not_negative(self, ("weight_decay", "standard_errors"))

    def resolve(self, rows: int) -> Training:
        """The same with what is "auto" decided by the number of rows to train on."""
        batch = min(256, max(32, rows // 8)) if self.batch_size == "auto" else self.batch_size
        return self._lengths(rows, batch, AUTO_STEPS, (1, 1000), VALIDATION_STEPS)

    def _lengths(
        self, rows: int, batch: int, steps: int, ends: tuple[int, int], between: int
    ) -> Any:
        """Epochs for about so many steps, and epochs between validations, for a batch size."""
        per_epoch = math.ceil(rows / batch)
        low, high = ends
        epochs = min(high, max(low, math.ceil(steps / per_epoch)))
        every = max(1, round(between / per_epoch))
        return replace(
            self,
            batch_size=batch,
            epochs=epochs if self.epochs == "auto" else self.epochs,
            validate_every=every if self.validate_every == "auto" else self.validate_every,
        )

    def length(self, rows: int) -> float:
        """Epochs that a resolved training takes at most; the last one may end early."""
        assert isinstance(self.epochs, int)
        assert isinstance(self.batch_size, int)
        if self.max_steps is None:
            return self.epochs
        return min(self.epochs, self.max_steps / math.ceil(rows / self.batch_size))


AUTO_STEPS = 1600
"""Optimiser steps that ``epochs="auto"`` aims at."""

VALIDATION_STEPS = 50
"""Steps between two validations that ``validate_every="auto"`` aims at."""


@dataclass(frozen=True, slots=True, repr=False)
class PointTraining(Training):
    """The training of :class:`varjepa.TJEPA`, which has an average of its own."""

    epochs: int | Literal["auto"] = "auto"
    """maximum number of epochs; "auto": about 1,400 steps, within 10 to 200 epochs"""
    batch_size: int | Literal["auto"] = "auto"
    """rows per step; "auto": a twentieth of the training rows, within 32 to 512"""
    optimiser: Literal["muon", "adamw"] = "adamw"
    """"muon": Muon for the matrices of linear maps and AdamW for everything else"""
    learning_rate: float = 1e-3
    """peak rate of AdamW"""
    max_norm: float | None = None
    """largest norm of a step's gradient, to which a larger one is scaled; None: no limit"""
    schedule: Literal["average", "cosine"] = "cosine"
    """after a linear warm-up: as :class:`Training`'s"""
    warm_up_share: float = 0.1
    """share of the training in which the rate rises"""
    weight_decay: float = 0.0
    """on matrices only"""
    validate_every: int | Literal["auto"] = 4
    """epochs between two validations"""
    patience: int = 5
    """validations without improvement before training stops"""

    def resolve(self, rows: int) -> PointTraining:
        """The same with what is "auto" decided by the number of rows to train on."""
        batch = min(512, max(32, rows // 20)) if self.batch_size == "auto" else self.batch_size
        return self._lengths(rows, batch, 1400, (10, 200), VALIDATION_STEPS)


# --- one run


@dataclass(frozen=True, slots=True, repr=False)
class Run(Settings):
    """Where one fit keeps its checkpoints and logs. Nothing here changes the result."""

    checkpoint_dir: str | os.PathLike[str] | None = None
    """folder for checkpoints, of which the newest two stay; a fit that is stopped (Ctrl-C, SIGTERM)
    leaves one of its very last step. Remove the folder once the model is saved"""
    checkpoint_every: float = 30.0
    """seconds between two checkpoints, or more where writing would take over 1 % of the time;
    0: after every step, whatever it costs"""
    resume: bool = False
    """continue from the newest checkpoint in ``checkpoint_dir``, if there is one, to the same
    weights as without the interruption; other settings or another table are refused"""
    log_dir: str | os.PathLike[str] | None = None
    """folder for history.jsonl, a line per epoch"""
    tensorboard: bool = False
    """also write TensorBoard events to ``log_dir``"""
    capture: bool = True
    """record training steps as CUDA graphs on a GPU"""

    def check(self) -> None:
        if self.tensorboard and self.log_dir is None:
            raise InputError("tensorboard needs log_dir, the folder for its events")
        if self.resume and self.checkpoint_dir is None:
            raise InputError("resume needs checkpoint_dir, the folder of the checkpoints")
        if not self.checkpoint_every >= 0.0:
            raise InputError(
                f"checkpoint_every must be a number of seconds, not {self.checkpoint_every!r}"
            )


# --- types


def type_hints(kind: type) -> dict[str, Any]:
    """Name and type of every field, in order."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def plain(value: Any) -> Any:
    """The value in Python's own types: numpy's numbers as Python's, lists as tuples."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, list | tuple):
        return tuple(plain(item) for item in value)
    return value


def fits(value: Any, hint: Any) -> bool:
    """Whether a plain value is of an annotated type; a float is finite.

    Examples:
        >>> fits((0.1, 1), tuple[float, float]), fits(True, int), fits("auto", int | None)
        (True, False, False)
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in arguments)
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin is tuple:
        right_length = isinstance(value, tuple) and len(value) == len(arguments)
        return right_length and all(map(fits, value, arguments))
    if hint is bool:
        return isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if hint is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and abs(value) < 2**63  # false of NaN too
    if hint is types.NoneType:
        return value is None
    return isinstance(value, origin or hint)


def in_words(hint: Any) -> str:
    """An annotated type as an error message names it.

    Examples:
        >>> in_words(int | None), in_words(tuple[float, float])
        ('an integer or None', 'two numbers')
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(in_words(one) for one in arguments))
    if origin is Literal:
        return " or ".join(f'"{value}"' for value in arguments)
    if origin is tuple:
        count = {2: "two", 3: "three"}.get(len(arguments), str(len(arguments)))
        return f"{count} {'strings' if arguments[0] is str else 'numbers'}"
    names = {bool: "True or False", int: "an integer", float: "a finite number", str: "a string"}
    return "None" if hint is types.NoneType else names.get(hint, "a path")


def _check_multiple(settings: Any, width: str, heads: str) -> None:
    if getattr(settings, width) % getattr(settings, heads):
        raise InputError(
            f"{width} must be a multiple of {heads}, not {getattr(settings, width)} with "
            f"{getattr(settings, heads)} heads"
        )


def _check_not_negative(settings: Any, names: Iterable[str]) -> None:
    for name in names:
        if getattr(settings, name) < 0.0:
            raise InputError(f"{name} must not be negative, as {getattr(settings, name)} is")


def field_names(kind: type) -> tuple[str, ...]:
    return tuple(type_hints(kind))


def as_path(folder: str | os.PathLike[str] | None) -> Path | None:
    """A folder of :class:`Run` as a path."""
    return None if folder is None else Path(folder)


def to_json(settings: Any) -> dict[str, Any]:
    """Fields as JSON can hold them."""
    values = {name: getattr(settings, name) for name in type_hints(type(settings))}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def from_json(kind: type, value: Any, where: str) -> Any:
    """A settings object from untrusted JSON; the error names the field."""
    if not isinstance(value, Mapping) or set(value) != set(type_hints(kind)):
        raise InputError(f"{where} does not have the fields of {kind.__name__}")
    try:
        return kind(**value)
    except InputError as error:
        raise InputError(f"{where}.{error}") from error


# --- nested parameters


def expand(name: str, settings: Settings) -> dict[str, Any]:
    """The fields of a settings object as scikit-learn's nested parameters."""
    return {f"{name}__{field}": getattr(settings, field) for field in field_names(type(settings))}


def changed(name: str, settings: Any, changes: Mapping[str, Any]) -> Any:
    """A copy of frozen settings with some fields changed."""
    if not isinstance(settings, Settings):
        raise InputError(f"{name} must be a settings object, not {settings!r}")
    known = field_names(type(settings))
    for field in changes:
        if field not in known:
            raise ValueError(
                f"Invalid parameter {field!r} for {name}; valid ones are {', '.join(known)}"
            )
    return replace(settings, **changes)  # type: ignore[type-var]


def nested(kinds: Mapping[str, type[Settings]], flat: Mapping[str, Any]) -> dict[str, Any]:
    """Hyperparameters by their plain names as nested parameters: ``d`` → ``architecture__d``.

    ``kinds`` are the ``settings_kinds`` of an estimator.
    """
    places = {field: name for name, one in kinds.items() for field in field_names(one)}
    return {f"{places[k]}__{k}" if k in places else k: v for k, v in flat.items()}


def at_least_one(name: str, value: Any) -> None:
    """Refuse what is not a positive integer."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < 1:
        raise InputError(f"{name} must be an integer of at least 1, not {value!r}")


def is_share(value: Any) -> bool:
    """Whether it is a number above 0 and below 1."""
    return isinstance(value, Real) and 0.0 < float(value) < 1.0


def one_of(name: str, value: Any, known: tuple[Any, ...]) -> None:
    """Refuse a value that is not among the known ones."""
    if value not in known:
        raise InputError(f"{name} must be one of {', '.join(map(repr, known))}, not {value!r}")


def pick_device(name: str) -> torch.device:
    """The device asked for; "auto" takes a GPU where there is one."""
    import torch  # not needed to check settings, and slow to load

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device {name!r} is not auto, cpu or cuda") from error
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device {name!r} is not auto, cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {name!r} was asked for, but torch sees no GPU")
    return device
