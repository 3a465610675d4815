"""Find a dataset on disk or fetch it from OpenML, check it, and read it.

One form for a table wherever it comes from, and the SHA-256 that says that it is the one.

Files of the same data differ in types, row order and compression, so not the file is hashed but its
content, written like this:

- a line of JSON, UTF-8, without spaces: the columns as [name, type, levels], the class values, and
  the number of rows. Levels are a categorical column's values, sorted; null for numbers;
- then every row as big-endian integers without gaps, in column order, the class last. uint8, int16
  and int32 columns as they are; doubles as int64 of round(10⁶ x), since six decimals are what
  Electricity's file has and what SIM promises on every machine; a category as int8, 0 if missing,
  else 1 + its place among the levels; the class as uint8;
- rows sorted as byte strings. The same order is the *canonical order* that subsets are drawn from,
  so that the order of a file (OpenML has Adult's test rows first) changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.datasets import fetch_openml

from paper.datasets.catalogue import (
    BYTE,
    CATEGORY,
    DOUBLE,
    INT,
    ORDER_SEED,
    R_SEED,
    SHORT,
    SIM_SEED,
    U_SEED,
    DatasetInfo,
    OpenmlTable,
    dataset_info,
)
from varjepa.demo.sim import draw_sim
from varjepa.errors import InputError
from varjepa.evaluate.splits import Split, split_rows
from varjepa.files import make_folder, replacing

TARGET = "target"
"""the class column of a source"""

_WIRE = {BYTE: "u1", SHORT: ">i2", INT: ">i4", DOUBLE: ">i8", CATEGORY: "i1"}


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """One dataset of Section 4.2, ready to use and checked."""

    name: str
    """what commands call it, e.g. ``credit_default``"""
    title: str
    """what people call it"""
    table: pa.Table
    """the features, nothing else; categories are dictionary columns, missing cells null"""
    label: NDArray[np.int64]  # (N,)
    """class numbers, 0 to len(class_names) − 1"""
    class_names: tuple[str, ...]
    ambiguity: NDArray[np.float64] | None  # (N,)
    """the true u of every row where the data was made with one (MNIST, SIM), else None"""
    sha256: str
    """of the source's canonical content (``canonical``): which data a result was computed on"""
    origin: str
    """where it was read from: a file, OpenML, or the generator"""

    def split(self, seed: int) -> Split:
        """70 % to train, 10 % to validate, 20 % to test; the same seed gives the same rows."""
        return split_rows(self.table.num_rows, seed)


@dataclass(frozen=True, slots=True, eq=False)
class CanonicalTable:
    """A source in canonical types, still in its own row order."""

    table: pa.Table
    """the features"""
    label: NDArray[np.int64]  # (N,)
    order: NDArray[np.int64]  # (N,) row numbers in canonical order
    sha256: str


def canonical_table(info: DatasetInfo, source: pa.Table, place: str) -> CanonicalTable:
    """Bring a source into canonical form, or say what about it is not what ``info`` describes."""
    _check_names(info, source, place)
    columns = {
        name: as_type(source[name], kind, f"column {name!r} of {place}")
        for name, kind in info.columns.items()
    }
    if source.num_rows != info.source_rows:
        raise InputError(f"{place} has {source.num_rows:,} rows instead of {info.source_rows:,}")
    label = _labels(info, source[TARGET], place)
    records = _records(columns, label)
    order = np.argsort(records.view(f"S{records.itemsize}"), kind="stable")
    digest = hashlib.sha256(_header(info, columns))
    digest.update(records[order].tobytes())
    if digest.hexdigest() != info.sha256:
        raise InputError(
            f"{place} has the rows, columns and classes of {info.title} but other values: the "
            f"SHA-256 of its content is {digest.hexdigest()} instead of {info.sha256}"
        )
    return CanonicalTable(pa.table(columns), label, order, digest.hexdigest())


def as_type(column: pa.ChunkedArray, kind: pa.DataType, place: str) -> pa.Array:
    """A column in its canonical type: exact, or an InputError."""
    try:
        if kind == CATEGORY:
            return _categories(column)
        numbers = _one_chunk(column).cast(kind)
    except pa.ArrowInvalid as error:
        raise InputError(f"{place} holds values that are not {kind}") from error
    except pa.ArrowNotImplementedError as error:
        raise InputError(f"{place} holds {column.type} values instead of {kind}") from error
    if numbers.null_count or (kind == DOUBLE and not pc.all(pc.is_finite(numbers)).as_py()):
        raise InputError(f"{place} has missing or infinite numbers; the original has none")
    return numbers


def _categories(column: pa.ChunkedArray) -> pa.DictionaryArray:
    text = _text(column)
    text = pc.if_else(pc.equal(text, "?"), None, text)
    levels = text.unique().drop_null().sort()
    return pa.DictionaryArray.from_arrays(pc.index_in(text, levels).cast(pa.int8()), levels)


def _text(column: pa.ChunkedArray) -> pa.Array:
    array = _one_chunk(column)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_floating(array.type):  # 2.0 and 2 are the same code
        array = array.cast(pa.int64())
    return pc.utf8_trim_whitespace(array.cast(pa.string()))


def _labels(info: DatasetInfo, column: pa.ChunkedArray, place: str) -> NDArray[np.int64]:
    try:
        text = _text(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"column {TARGET!r} of {place} holds no classes") from error
    values = list(info.classes)
    label = pc.index_in(text, pa.array(values))
    if label.null_count:
        odd = text.filter(pc.is_null(label))[0].as_py()
        raise InputError(f"{place} has the class {odd!r}, which is none of {', '.join(values)}")
    numbers = label.to_numpy().astype(np.int64)
    counts = np.bincount(numbers, minlength=len(values)).tolist()
    for value, rows, expected in zip(values, counts, info.class_rows, strict=True):
        if rows != expected:
            raise InputError(
                f"{place} has {rows:,} rows of class {value!r} instead of {expected:,}"
            )
    return numbers


def _check_names(info: DatasetInfo, source: pa.Table, place: str) -> None:
    wanted = [*info.columns, TARGET]
    for name in wanted:
        if source.column_names.count(name) != 1:
            raise InputError(f"{place} does not have exactly one column {name!r}")
    for name in source.column_names:
        if name not in wanted:
            raise InputError(f"{place} has a column {name!r}, which {info.title} does not have")


def _header(info: DatasetInfo, columns: dict[str, pa.Array]) -> bytes:
    described = [
        [name, "category" if kind == CATEGORY else str(kind), _levels(columns[name])]
        for name, kind in info.columns.items()
    ]
    value = {"columns": described, "classes": list(info.classes), "rows": info.source_rows}
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"{text}\n".encode()


def _levels(column: pa.Array) -> list[str] | None:
    return column.dictionary.to_pylist() if pa.types.is_dictionary(column.type) else None


def _records(columns: dict[str, pa.Array], label: NDArray[np.int64]) -> NDArray[Any]:
    """The rows as fixed-width bytes, in the source's order."""
    fields = [(name, _WIRE[column.type]) for name, column in columns.items()] + [(TARGET, "u1")]
    records = np.empty(len(label), dtype=fields)
    for name, column in columns.items():
        records[name] = _integers(column)
    records[TARGET] = label
    return records


def _integers(column: pa.Array) -> NDArray[Any]:
    if column.type == CATEGORY:
        return pc.fill_null(column.indices, -1).to_numpy() + 1
    values: NDArray[Any] = column.to_numpy()
    return np.rint(values * 1e6) if column.type == DOUBLE else values


def _one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


# --- MNIST with a known ambiguity (Appendix C.1.2).
#
# u ~ U(0, 1)    r ~ U(0, 1)^784    α = clip(λ u, 0, 1)    x' = (1 − α) x + α r, x in [0, 1]

NOISE_SCALE = 0.75
"""λ"""


@dataclass(frozen=True, slots=True, eq=False)
class CorruptedImages:
    pixels: NDArray[np.float32]  # (N, 784) in [0, 1]
    ambiguity: NDArray[np.float64]  # (N,) u


def corrupt_images(
    images: NDArray[np.uint8],  # (N, 784)
    u_seed: int,
    r_seed: int,
    noise_scale: float = NOISE_SCALE,
) -> CorruptedImages:
    """Draw u and r, and blend; everything of size N × 784 is float32."""
    # a stream each, so that the u of a row does not hang on how many pixels there are
    u = np.random.default_rng(u_seed).random(len(images))
    r = np.random.default_rng(r_seed).random(images.shape, dtype=np.float32)
    alpha = np.clip(noise_scale * u, 0, 1).astype(np.float32)[:, None]  # (N, 1)
    x = images.astype(np.float32) / np.float32(255)
    return CorruptedImages((1 - alpha) * x + alpha * r, u)


# --- The real datasets from OpenML, through scikit-learn's fetcher.


def fetch_source(info: DatasetInfo, table: OpenmlTable, data_home: Path) -> pa.Table:
    """The table as our Parquet files have it: our names and types, the class last."""
    place = f"OpenML {table.data_id}"
    bunch = _fetch_openml(info, table, data_home)
    values: NDArray[Any] = bunch.data  # (N, D) floats; a category is a place in its list of names
    if values.ndim != 2 or values.shape[1] != len(info.columns):
        shape = f"a table of shape {values.shape}"
        raise InputError(f"{place} is {shape}, not one of {len(info.columns)} columns")
    columns: dict[str, pa.Array] = {}
    # by position: OpenML's names are V1, x1 or pixel1; the checks that follow see any mix-up
    for j, (name, kind) in enumerate(info.columns.items()):
        column = pa.array(np.ascontiguousarray(values[:, j]), from_pandas=True)
        levels = bunch.categories.get(bunch.feature_names[j])
        if levels is not None:
            column = pa.array(levels, pa.string()).take(column.cast(pa.int64()))
        columns[name] = as_type(column, kind, f"column {name!r} of {place}")
    target = pa.array([str(value) for value in bunch.target])
    for theirs, ours in (table.classes or {}).items():
        target = pc.if_else(pc.equal(target, theirs), ours, target)
    return pa.table(columns | {TARGET: target})


def _fetch_openml(info: DatasetInfo, table: OpenmlTable, data_home: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "retrying": what matters is how it ends
        try:
            # liac-arff is slow (a minute for MNIST, once) but needs no pandas
            return fetch_openml(
                data_id=table.data_id, data_home=str(data_home), as_frame=False, parser="liac-arff"
            )
        except (OSError, ValueError, KeyError) as error:  # no network; not what OpenML should send
            reason = " ".join(str(error).split()) or type(error).__name__
            raise InputError(
                f"{info.title} is not on this machine and OpenML {table.data_id} could not be "
                f"fetched ({reason}); set VARJEPA_DATA to a folder with {info.name}.parquet, or "
                "connect to the internet"
            ) from error


# --- One function for all datasets: from a folder of Parquet files, our cache, or OpenML.

FOLDER_VARIABLE = "VARJEPA_DATA"
"""a folder with adult.parquet, covertype.parquet, …: features, then the class as ``target``"""
HOME_VARIABLE = "SCIKIT_LEARN_DATA"
"""scikit-learn's own variable for where downloads go; ~/scikit_learn_data without it"""


@dataclass(frozen=True, slots=True)
class Whereabouts:
    where: Literal["built in", "folder", "cache", "not here"]
    path: Path | None = None
    """the Parquet file, if there is one"""


def load_dataset(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    data_home: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Load and check a dataset of Section 4.2.

    Looked for in ``folder`` (default: the variable VARJEPA_DATA), then in ``data_home/varjepa``,
    then on OpenML, whose answer is kept in ``data_home`` (default: scikit-learn's data folder).
    SIM is generated. Rows come in the same random order wherever they were found.

    Examples:
        >>> sim = load_dataset("sim")
        >>> sim.table.shape, len(sim.split(seed=0).test)
        ((10000, 32), 2000)
    """
    info = dataset_info(name)
    path, ambiguity = locate_dataset(name, folder, data_home).path, None
    if info.openml is None:
        sim, place = draw_sim(seed=SIM_SEED), "generated"
        source = sim.to_arrow().append_column(TARGET, pa.array(sim.label))
        canonical = canonical_table(info, source, "the SIM generator's table")
        # in the order of the draw: its rows are independent already, and the demo shows the same
        rows, ambiguity = np.arange(info.rows), sim.ambiguity
    else:
        if path is not None:
            place = str(path)
            canonical = canonical_table(info, _read(path), place)
        else:
            place = f"OpenML {info.openml.data_id}"
            canonical = _fetch(info, info.openml, _data_home(data_home), place)
        shuffled = np.random.default_rng(ORDER_SEED).permutation(canonical.order)
        rows = shuffled[: info.rows]
    table = canonical.table.take(rows)
    if info.name == "mnist":
        images = np.stack([column.to_numpy() for column in table.columns], axis=1)
        corrupted = corrupt_images(images, U_SEED, R_SEED)
        pixels = np.asfortranarray(corrupted.pixels)  # each column in one piece
        table = pa.table({name: pixels[:, j] for j, name in enumerate(info.columns)})
        ambiguity = corrupted.ambiguity
    return Dataset(
        name=info.name,
        title=info.title,
        table=table,
        label=canonical.label[rows],
        class_names=tuple(info.classes.values()),
        ambiguity=ambiguity,
        sha256=canonical.sha256,
        origin=place,
    )


def locate_dataset(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    data_home: str | os.PathLike[str] | None = None,
) -> Whereabouts:
    """Where ``load_dataset`` would take a dataset from; looks at files, never at the network."""
    info = dataset_info(name)
    if info.openml is None:
        return Whereabouts("built in")
    here = _folder(folder)
    if here is not None and (here / f"{info.name}.parquet").is_file():
        return Whereabouts("folder", here / f"{info.name}.parquet")
    cached = _cached(info, _data_home(data_home))
    return Whereabouts("cache", cached) if cached.is_file() else Whereabouts("not here")


def _fetch(info: DatasetInfo, table: OpenmlTable, home: Path, place: str) -> CanonicalTable:
    """Fetch, check, and only then keep for the next time."""
    source = fetch_source(info, table, home)
    canonical = canonical_table(info, source, place)
    cached = _cached(info, home)
    make_folder(cached.parent)
    with replacing(cached) as temporary:
        pq.write_table(source, temporary, compression="zstd")
    return canonical


def _read(path: Path) -> pa.Table:
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            return file.read()
    except pa.ArrowException as error:
        raise InputError(f"{path} is not a Parquet file") from error


def _folder(folder: str | os.PathLike[str] | None) -> Path | None:
    given = folder if folder is not None else os.environ.get(FOLDER_VARIABLE) or None
    if given is None:
        return None
    path = Path(given).expanduser()
    if not path.is_dir():
        option = "" if folder is not None else f"{FOLDER_VARIABLE}="
        raise InputError(f"{option}{path} is not a folder")
    return path


def _data_home(data_home: str | os.PathLike[str] | None) -> Path:
    given = data_home if data_home is not None else os.environ.get(HOME_VARIABLE)
    return Path(given or "~/scikit_learn_data").expanduser()


def _cached(info: DatasetInfo, home: Path) -> Path:
    return home / "varjepa" / f"{info.name}.parquet"
