"""What every estimator on tables shares: tables in, training, arrays out, model folders.

A subclass says which model it is about: its constructor's parameters, the networks, the objective.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import InvalidParameterError, validate_parameter_constraints
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted
from torch import Tensor, nn

from varjepa.errors import InputError
from varjepa.estimators import fitting
from varjepa.estimators.frames import refuse_too_little, to_arrow
from varjepa.estimators.resuming import claim, open_checkpoints
from varjepa.estimators.summary import model_html, write_card
from varjepa.model_folder import (
    ModelFileError,
    OpenModel,
    SavedModel,
    TensorKind,
    WeightFile,
    compare_arithmetic,
    open_model,
    save_model,
)
from varjepa.nn.layers import TableShape
from varjepa.nn.row_threads import map_blocks
from varjepa.randomness import seeded_weights
from varjepa.settings import (
    OUTPUTS,
    Architecture,
    Objective,
    Output,
    PointArchitecture,
    PointObjective,
    Run,
    Settings,
    Training,
    as_path,
    at_least_one,
    changed,
    expand,
    from_json,
    one_of,
    pick_device,
    to_json,
)
from varjepa.tables import KINDS, SCALINGS, EncodedTable, Kind, Scaling, TableCodec, codec_json
from varjepa.tables.codec_json import (
    StrictObject,
    flag,
    integer,
    list_of,
    number,
    optional,
    text,
    whole_text,
)
from varjepa.tables.columns import TableInMemory
from varjepa.tables.describe import TableDescription, describe_codec
from varjepa.tables.messages import TableWarnings, collect_warnings
from varjepa.tables.streaming import TableFiles
from varjepa.training.checkpoints import Checkpoint, Checkpoints
from varjepa.training.loop import CollapseReport, Record, train
from varjepa.training.losses import Loss
from varjepa.training.processes import current_world
from varjepa.training.progress import listening, reading_bar, show_lines

OnEpoch = Callable[[Record], None]


class ParameterError(InputError, InvalidParameterError):
    """A parameter of a wrong type, under scikit-learn's name for it too."""


class TableEstimator(TransformerMixin, BaseEstimator):
    """A model that is learned from unlabelled rows of a table and turns rows into vectors.

    The constructor only stores; everything learned ends in ``_``.
    """

    # what fit learns
    codec_: TableCodec
    model_: nn.Module
    seed_: int
    history_: list[Record]
    best_epoch_: int
    selected_by_: str
    collapse_: CollapseReport
    frame_: str
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]

    settings_kinds: ClassVar[dict[str, type[Settings]]]
    """the settings object that each of these parameters takes"""
    _network: ClassVar[Any]
    """the networks' class, which takes the table's shape and an architecture"""
    _has_uncertainty: ClassVar[bool]
    """whether uncertain validation rows can be discarded"""
    _scaling: ClassVar[Scaling]
    """of numbers, where the constructor was given none"""
    _remedy: ClassVar[str]
    """what to do about a collapse"""

    def __init__(
        self,
        architecture: Architecture | PointArchitecture | None = None,
        objective: Objective | PointObjective | None = None,
        training: Training | None = None,
        *,
        column_kinds: Mapping[str, Kind] | None = None,
        scaling: Scaling | None = None,
        max_levels: int = 1000,
        output: Output = "flat",
        device: str = "auto",
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.architecture = architecture
        self.objective = objective
        self.training = training
        self.column_kinds = column_kinds
        self.scaling = scaling
        self.max_levels = max_levels
        self.output = output
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    # --- what a subclass fills in

    def _loss(self, model: Any) -> Loss:
        """The model with its loss."""
        raise NotImplementedError

    def _tokens(self, model: Any, rows: EncodedTable) -> Tensor:
        """What :meth:`transform` is made of: a vector per feature.  # (B, D, d)"""
        raise NotImplementedError

    def _cls(self, model: Any, rows: EncodedTable) -> Tensor:
        """The CLS tokens of whole rows.  # (B, N_CLS, d)"""
        raise NotImplementedError

    def _calibrate(self, training: EncodedTable, validation: EncodedTable) -> None:
        """Learn what the trained networks' answers on some rows can teach."""

    def _learned_to_json(self) -> dict[str, Any]:
        """What :meth:`_calibrate` learned, as plain JSON values."""
        return {}

    def _restore_learned(self, config: StrictObject) -> None:
        """Take the same back, from untrusted JSON."""

    @property
    def _predicts_values(self) -> bool:
        """Whether the model is trained to predict cells, so that they can pick the checkpoint."""
        return False

    def cell_baseline(self) -> float | None:
        """What each column's own distribution scores on held-out cells; None: it is not known."""
        return None

    # --- settings

    def settings(self, name: str) -> Any:
        """The settings object in use: the one given to the constructor, or its defaults."""
        value = getattr(self, name)
        return self.settings_kinds[name]() if value is None else value

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters; with ``deep`` also the fields of settings, as ``training__learning_rate``."""
        parameters: dict[str, Any] = super().get_params(deep=False)
        if deep:
            for name, kind in self.settings_kinds.items():
                value = self.settings(name)
                if isinstance(value, kind):
                    parameters |= expand(name, value)
        return parameters

    def set_params(self, **params: Any) -> Self:
        """Change parameters; a nested one replaces its settings object by a changed copy."""
        inner: dict[str, dict[str, Any]] = {}
        outer: dict[str, Any] = {}
        for key, value in params.items():
            name, _, field = key.partition("__")
            if field and name in self.settings_kinds:
                inner.setdefault(name, {})[field] = value
            else:
                outer[key] = value
        super().set_params(**outer)
        for name, changes in inner.items():
            setattr(self, name, changed(name, self.settings(name), changes))
        return self

    def check_parameters(self) -> None:
        """Refuse constructor parameters that make no sense; settings have checked themselves."""
        try:
            validate_parameter_constraints(
                self._parameter_constraints, self.get_params(deep=False), type(self).__name__
            )
        except InvalidParameterError as error:
            raise ParameterError(" ".join(str(error).split())) from error
        one_of("output", self.output, OUTPUTS)
        at_least_one("max_levels", self.max_levels)
        on_cpu = pick_device(self.device).type == "cpu"
        if on_cpu and self.settings("training").precision == "bfloat16":
            # some CPUs announce bfloat16 instructions and then stop at them
            raise InputError('precision "bfloat16" needs a GPU; a CPU computes in float32')

    # --- learning

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        validation: Any = None,
        run: Run | None = None,
        on_epoch: OnEpoch | None = None,
    ) -> Self:
        """Learn from unlabelled rows; class labels, where given, only pick the checkpoint.

        Args:
            X: a table (see the class), or a folder or pattern of Parquet files.
            y: class labels; None or NaN where a row has none. Such rows are learned from all the
                same. Numbers that are no classes (floats, or many different integers) pick nothing.
            validation: rows that pick the checkpoint: ``X_val``, ``(X_val, y_val)``, or a
                :class:`Validation` with row numbers of X. None: a random share of X.
            run: folders for checkpoints and logs, and whether to resume.
            on_epoch: called with the record of every finished epoch.

        Under torchrun, inside :func:`varjepa.training.processes.join_world`, all processes train
        one model.
        """
        if run is not None and not isinstance(run, Run):
            raise InputError(f"run must be a Run, such as Run(checkpoint_dir=…), not {run!r}")
        before = dict(self.__dict__)
        try:
            self._fit(X, y, validation, run or Run(), on_epoch or (lambda record: None))
        except BaseException:  # a fit that failed leaves the estimator as it was
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def _fit(
        self, X: Any, y: ArrayLike | None, validation: Any, run: Run, on_epoch: OnEpoch
    ) -> None:
        world = current_world()
        has_bar = bool(self.verbose) and world.is_main
        with world.sharing_errors():
            self.check_parameters()
            files = fitting.table_files(X)
            if files is not None and has_bar:
                files = replace(files, watch=reading_bar)
            data = self._read(X, y) if files is None else self._read_files(files, y)
            data = fitting.with_validation(self, data, validation)
        self.seed_ = int(world.broadcast_number(self.seed_))
        with ExitStack() as stack:
            checkpoints: Checkpoints | None = None
            past: Checkpoint | None = None
            if run.checkpoint_dir is not None:
                checkpoints, past = stack.enter_context(open_checkpoints(self, run, world))
            is_asked = checkpoints is not None or world.size > 1
            codec, description = data.codec, data.description
            prepared = fitting.prepare_training(self, data, world, with_identity=is_asked)
            del data  # what was prepared has the rows it needs
            if files is not None:
                fitting.hand_back_memory()
            if is_asked:
                assert prepared.identity is not None
                world.check_same(json.dumps(prepared.identity).encode())
                claim(checkpoints, past, prepared.identity)
            if description is not None and world.is_main:
                show_lines(description.lines())
            log_dir = as_path(run.log_dir) if world.is_main else None
            shown = None
            if has_bar or log_dir is not None:
                shown = stack.enter_context(listening(has_bar, log_dir, run.tensorboard))

            def after_epoch(record: Record) -> None:
                if shown is not None:
                    shown.on_epoch(record)
                on_epoch(record)

            def after_step(step: int, total: int) -> None:
                if shown is not None:
                    shown.on_step(step, total)

            self._train(codec, prepared, after_epoch, after_step, checkpoints, past, run.capture)

    def _read(self, X: Any, y: ArrayLike | None) -> fitting.TrainingData:
        """The table as tensors, with a codec fitted to it."""
        table = TableInMemory(to_arrow(self, X, reset=True))
        scaling = self.scaling or self._scaling
        codec = TableCodec.fit(table, self.column_kinds, scaling, self.max_levels)
        description = self._accept(codec, table.rows)
        with collect_warnings() as collected:
            rows = self._rows(codec.encode(table))
        TableWarnings(unseen=collected.unseen).warn(stacklevel=3)  # infinite: said by the codec
        return fitting.TrainingData(codec, rows, None, y, description)

    def _read_files(self, files: TableFiles, y: ArrayLike | None) -> fitting.TrainingData:
        """The same of a table in files; its rows are not read where there are too many to hold."""
        if y is not None and files.labels is not None:
            raise InputError("the labels are either y or a column of the files, not both")
        self.frame_ = "pyarrow"
        self.n_features_in_ = len(files.schema)
        self.feature_names_in_ = np.array(files.schema.names, dtype=object)
        scaling = self.scaling or self._scaling
        codec = fitting.fit_codec(files, self.column_kinds, scaling, self.max_levels)
        description = self._accept(codec, files.rows)
        if fitting.is_streamed(files):
            return fitting.TrainingData(codec, None, files, y, description)
        rows, labels = fitting.read_rows(files, codec)
        return fitting.TrainingData(
            codec, self._rows(rows), files, labels if y is None else y, description
        )

    def _accept(self, codec: TableCodec, rows: int) -> TableDescription | None:
        """Refuse a table that teaches nothing, and draw the fit's seed; what was inferred."""
        refuse_too_little(codec, rows)
        self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        return describe_codec(codec, rows) if self.verbose > 1 else None

    def _train(
        self,
        codec: TableCodec,
        prepared: fitting.PreparedTraining,
        on_epoch: OnEpoch,
        on_step: Callable[[int, int], None],
        checkpoints: Checkpoints | None,
        past: Checkpoint | None,
        capture: bool,
    ) -> None:
        """Train, and keep what was learned."""
        with seeded_weights(self.seed_):
            kind: Any = self.settings_kinds["architecture"]
            architecture = self.architecture or kind.for_rows(prepared.rows)
            model = self._network(self.table_shape(codec), architecture)
            model = model.to(prepared.source.rows.num.device)
        result = train(
            self._loss(model),
            prepared.source,
            prepared.training,
            prepared.selection,
            self.seed_,
            on_epoch,
            on_step,
            checkpoints=checkpoints,
            past=past,
            world=current_world(),
            capture=capture,
        )
        self.codec_, self.model_ = codec, model.cpu()
        self.history_ = result.history
        self.best_epoch_ = result.best_epoch
        self.selected_by_ = prepared.selection.name
        self.collapse_ = result.collapse
        self._calibrate(prepared.some_training, prepared.some_validation)
        if result.collapse.collapsed:
            warnings.warn(
                f"the latents have collapsed: {result.collapse.active_units:.1f} of "
                f"{model.settings.d} dimensions per column vary across rows; "
                f"{self._remedy}",
                stacklevel=4,
            )

    # --- reading

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Embeddings as a 2-D array; ``output`` says which."""
        compute = self._cls if self.output == "cls" else self._tokens
        tokens = self._compute(self.encode(X), compute)
        return tokens.mean(1) if self.output == "mean" else tokens.reshape(len(tokens), -1)

    def describe(self) -> TableDescription:
        """What was inferred of the table that the model was fitted to; ``print`` shows it."""
        check_is_fitted(self)
        return describe_codec(self.codec_)

    # --- keeping

    def save(self, folder: str | Path) -> None:
        """Write a model folder: config.json, codec.json, model.safetensors, manifest.json.

        And README.md, a card for people, which :meth:`load` does not read.
        The folder of a ``VarTJEPA`` holds up to 2,048 training rows, readable for anyone who has
        the folder, unless ``forget_rows`` was called before.
        """
        check_is_fitted(self)
        save_model(Path(folder), to_saved(self))
        write_card(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a model folder back; embeddings are the same to the last bit.

        Where torch, system or processor are others, the last bits may differ, with a warning.
        """
        with open_model(Path(folder)) as saved:
            estimator = from_saved(cls, saved, Path(folder))
        other = compare_arithmetic(saved.environment)
        if other is not None:
            warnings.warn(
                f"{folder} was saved with {other}: its results may differ in the last bits",
                stacklevel=2,
            )
        return estimator

    # --- scikit-learn

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the columns of :meth:`transform`; ``input_features`` names those of an array."""
        check_is_fitted(self)
        given = _check_feature_names_in(self, input_features)
        architecture: Any = self.model_.settings
        called = dict(zip(self.codec_.schema.names, given, strict=True))
        heads = {
            "flat": [f.name.replace(f.column, called[f.column], 1) for f in self.codec_.features],
            "mean": [type(self).__name__.lower()],
            "cls": [f"cls{i}" for i in range(architecture.n_cls)],
        }[self.output]
        return np.array(
            [f"{head}_{i}" for head in heads for i in range(architecture.d)], dtype=object
        )

    @property
    def _parameter_constraints(self) -> dict[str, list[Any]]:
        return {
            **{name: [kind, None] for name, kind in self.settings_kinds.items()},
            "column_kinds": [Mapping, None],
            "scaling": [str, None],
            "max_levels": [Integral],
            "output": [str],
            "device": [str],
            "verbose": [Integral, "boolean"],
            "random_state": ["random_state"],
        }

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = []
        tags.non_deterministic = False
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    # a notebook shows what was learned; an estimator that is not fitted, scikit-learn's diagram

    def _repr_html_inner(self) -> str:
        return model_html(self) if self.__sklearn_is_fitted__() else super()._repr_html_inner()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**options)
        if "text/html" in bundle and self.__sklearn_is_fitted__():
            bundle["text/html"] = model_html(self)
        return bundle

    # --- inside

    def encode(self, X: Any) -> EncodedTable:
        """The rows of a table as the networks see them."""
        check_is_fitted(self)
        return self._encode(to_arrow(self, X, reset=False))

    def _encode(self, table: pa.Table) -> EncodedTable:
        """The same of a table that has been read."""
        return self._rows(self.codec_.encode(TableInMemory(table)))

    @staticmethod
    def table_shape(codec: TableCodec) -> TableShape:
        """What the networks need to know of a table; a category has MISSING as one state more."""
        numeric = len(codec.numeric)
        levels = tuple(f.levels + 1 for f in codec.features[numeric:])
        return TableShape(numeric, levels, tuple(number.bins for number in codec.numeric))

    def _rows(self, encoded: EncodedTable) -> EncodedTable:
        return encoded.to(pick_device(self.device))

    def _compute(
        self, rows: EncodedTable, compute: Callable[[Any, EncodedTable], Tensor]
    ) -> NDArray[Any]:
        """Compute something for every row in blocks of one size; the result as one array."""
        if not len(rows):
            raise InputError("the table has no rows")
        model = self.model_.to(rows.num.device)

        @torch.no_grad()  # of the thread that computes the block
        def one(block: EncodedTable) -> Tensor:
            return compute(model, block).cpu()

        parts = [part[:count] for part, count in map_blocks(one, rows)]
        self.model_.cpu()  # a fitted estimator stays picklable anywhere
        return torch.cat(parts).numpy()


# --- a fitted estimator as a model folder, and back
#
# On the way back nothing in the folder is believed: settings check themselves, the codec is checked
# against the columns it names, and every tensor's type and shape against networks that are only
# planned, before memory is allocated. What is left is what ``to_saved`` could have written.

Estimator = TypeVar("Estimator", bound=TableEstimator)

LAYER_COUNTS = ("depth", "predictor_depth", "imputer_depth")

_FRAMES = ("numpy", "pyarrow", "pandas", "polars", "modin", "cudf")


def parameters_to_json(estimator: TableEstimator) -> dict[str, Any]:
    """The parameters that describe a model; settings that were left out are saved as defaults."""
    estimator.check_parameters()
    seed = estimator.random_state
    return {
        **{name: to_json(estimator.settings(name)) for name in estimator.settings_kinds},
        "column_kinds": None if estimator.column_kinds is None else dict(estimator.column_kinds),
        "scaling": estimator.scaling,
        "max_levels": int(estimator.max_levels),
        "output": estimator.output,
        "device": estimator.device,
        # a generator's state is not a setting
        "random_state": int(seed) if isinstance(seed, Integral) else None,
    }


def parameters_from_json(kind: type[TableEstimator], value: Any, where: str) -> dict[str, Any]:
    """Arguments of the constructor, from untrusted JSON."""
    return StrictObject(value, where).take_all(
        **{name: partial(from_json, one) for name, one in kind.settings_kinds.items()},
        column_kinds=optional(_kinds),
        scaling=optional(codec_json.one_of(SCALINGS)),
        max_levels=_below(2**63),
        output=codec_json.one_of(OUTPUTS),
        device=_device,
        random_state=optional(_below(2**32)),
    )


def _device(value: Any, where: str) -> str:
    """A word that is a device somewhere: the model may come from a machine with a GPU."""
    if not re.fullmatch(r"auto|(cpu|cuda)(:\d{1,3})?", text(value, where)):
        raise InputError(f"{where} must be auto, cpu or cuda")
    return str(value)


def _kinds(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{where} must be a JSON object")
    return {whole_text(k, where): codec_json.one_of(KINDS)(v, where) for k, v in value.items()}


def to_saved(estimator: TableEstimator) -> SavedModel:
    """Everything a loaded estimator needs to answer as this one does."""
    names = getattr(estimator, "feature_names_in_", None)
    config = {
        "estimator": type(estimator).__name__,
        "parameters": {
            **parameters_to_json(estimator),
            "architecture": to_json(estimator.model_.settings),  # as the rows decided
        },
        "seed": estimator.seed_,
        "best_epoch": estimator.best_epoch_,
        "selected_by": estimator.selected_by_,
        "collapse": asdict(estimator.collapse_),
        "n_features": estimator.n_features_in_,
        "feature_names": None if names is None else list(names),
        "frame": estimator.frame_,
        "history": [
            {key: _finite(value) for key, value in record.items()} for record in estimator.history_
        ],
        **estimator._learned_to_json(),
    }
    return SavedModel(config, estimator.codec_.to_json(), dict(estimator.model_.state_dict()))


def from_saved(kind: type[Estimator], saved: OpenModel, folder: Path) -> Estimator:
    """The estimator that was saved, or one sentence about what is wrong with the folder."""
    name = saved.config.get("estimator") if isinstance(saved.config, dict) else None
    if name != kind.__name__:
        if name in ("VarTJEPA", "TJEPA"):
            raise ModelFileError(f"{folder} holds a {name}, not a {kind.__name__}")
        raise ModelFileError(f"{folder} does not hold a {kind.__name__} of this version")
    try:
        config = StrictObject(saved.config, "config")
        config.take("estimator", text)
        parameters = config.take(
            "parameters", lambda value, where: parameters_from_json(kind, value, where)
        )
        estimator = kind(**parameters)
        estimator.codec_ = _codec(saved.codec)
        _restore(estimator, config)
        estimator.model_ = _networks(estimator, saved.weights).eval()
    except ModelFileError:
        raise
    except InputError as error:
        raise ModelFileError(f"{folder} is not a model to load: {error}") from error
    return estimator


def _restore(estimator: TableEstimator, config: StrictObject) -> None:
    """What was learned besides codec and networks."""
    names = estimator.codec_.schema.names
    estimator.seed_ = config.take("seed", _below(2**32))
    estimator.best_epoch_ = config.take("best_epoch", _below(2**32))
    estimator.selected_by_ = config.take("selected_by", whole_text)
    estimator.collapse_ = config.take("collapse", _collapse)
    estimator.n_features_in_ = config.take("n_features", integer)
    given = config.take("feature_names", optional(list_of(whole_text)))
    if estimator.n_features_in_ != len(names) or given not in (None, names):
        raise InputError("config.n_features and feature_names do not fit the codec's columns")
    if given is not None:
        estimator.feature_names_in_ = np.array(given, dtype=object)
    frame = config.take("frame", text)
    estimator.frame_ = frame if frame in _FRAMES else "pyarrow"  # else nobody could make one
    estimator.history_ = list(config.take("history", list_of(_record)))
    estimator._restore_learned(config)
    config.finish()


def _codec(value: Any) -> TableCodec:
    """The codec, once it has shown that it can write a row: the last level of every category."""
    codec = TableCodec.from_json(value)
    numbers = np.zeros((1, len(codec.numeric)))
    codes = np.array([[len(category.levels) for category in codec.categorical]], dtype=np.int64)
    try:
        codec.decode(numbers, codes)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
        raise InputError("codec.columns have types that their values cannot have") from error
    return codec


def _networks(estimator: TableEstimator, weights: WeightFile) -> nn.Module:
    """Networks with the file's weights; they are planned first, without memory for weights."""
    shape = estimator.table_shape(estimator.codec_)
    # layers are planned one by one, and each has weights of its own
    architecture = estimator.settings("architecture")
    if any(getattr(architecture, name, 0) > len(weights) for name in LAYER_COUNTS):
        raise InputError("config.parameters has more layers than there are weights")
    try:
        with torch.device("meta"):
            planned = estimator._network(shape, architecture).state_dict()
    except (ArithmeticError, TypeError, ValueError, RuntimeError) as error:
        raise InputError("config.parameters are not those of a network") from error
    if weights.kinds != {name: TensorKind.of(tensor) for name, tensor in planned.items()}:
        raise InputError("the weights are not those of config.json and codec.json")
    with seeded_weights(estimator.seed_):  # leaves torch's own random numbers where they were
        model = estimator._network(shape, architecture)
    for name, tensor in model.state_dict().items():
        weights.read_into(name, tensor)
    return model


def _collapse(value: Any, where: str) -> CollapseReport:
    checks = {"active_units": number, "active_share": number, "collapsed": flag}
    report = StrictObject(value, where).take_all(silent_features=list_of(integer), **checks)
    return CollapseReport(**report)


def _record(value: Any, where: str) -> dict[str, Any]:
    """One epoch: names, and a number, a word or nothing for each."""
    if not isinstance(value, dict):
        raise InputError(f"{where} must be a JSON object")
    return {whole_text(key, where): _measured(item, where) for key, item in value.items()}


def _measured(value: Any, where: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return whole_text(value, where)
    return integer(value, where) if isinstance(value, int) else number(value, where)


def _below(end: int) -> Any:
    def check(value: Any, where: str) -> int:
        if not 0 <= integer(value, where) < end:
            raise InputError(f"{where} must be between 0 and {end - 1}")
        return int(value)

    return check


def _finite(value: Any) -> Any:
    """JSON has no NaN: a loss that was none is missing."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
