"""One function for all datasets: from a folder of Parquet files, our cache, or OpenML."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from varjepa.datasets.canonical import TARGET, CanonicalTable, canonical_table
from varjepa.datasets.catalogue import DatasetInfo, DrawSettings, OpenmlTable, dataset_info
from varjepa.datasets.dataset import Dataset
from varjepa.datasets.mnist import corrupt_images
from varjepa.datasets.openml import fetch_source
from varjepa.datasets.sim import draw_sim
from varjepa.errors import InputError
from varjepa.files import make_folder, replacing

FOLDER_VARIABLE = "VARJEPA_DATA"
"""a folder with adult.parquet, covertype.parquet, …: features, then the class as ``target``"""
HOME_VARIABLE = "SCIKIT_LEARN_DATA"
"""scikit-learn's own variable for where downloads go; ~/scikit_learn_data without it"""


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a dataset would be loaded from."""

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
    info, draws = dataset_info(name), DrawSettings()
    if info.openml is None:
        return _load_sim(info, draws)
    path = locate_dataset(name, folder, data_home).path
    if path is not None:
        place = str(path)
        canonical = canonical_table(info, _read(path), place)
    else:
        place = f"OpenML {info.openml.data_id}"
        canonical = _fetch(info, info.openml, _data_home(data_home), place)
    shuffled = np.random.default_rng(draws.order_seed).permutation(canonical.order)
    rows = shuffled[: info.rows]
    table, ambiguity = canonical.table.take(rows), None
    if info.name == "mnist":
        images = np.stack([column.to_numpy() for column in table.columns], axis=1)
        corrupted = corrupt_images(images, draws.u_seed, draws.r_seed)
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
    found = _folder(folder)
    if found is not None and (found / f"{info.name}.parquet").is_file():
        return Whereabouts("folder", found / f"{info.name}.parquet")
    cached = _cached(info, _data_home(data_home))
    return Whereabouts("cache", cached) if cached.is_file() else Whereabouts("not here")


def _load_sim(info: DatasetInfo, draws: DrawSettings) -> Dataset:
    sim = draw_sim(seed=draws.sim_seed)
    source = sim.to_arrow().append_column(TARGET, pa.array(sim.label))
    # in the order of the draw: its rows are independent already, and the demo shows the same ones
    canonical = canonical_table(info, source, "the SIM generator's table")
    return Dataset(
        name=info.name,
        title=info.title,
        table=canonical.table,
        label=canonical.label,
        class_names=tuple(info.classes.values()),
        ambiguity=sim.ambiguity,
        sha256=canonical.sha256,
        origin="generated",
    )


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
