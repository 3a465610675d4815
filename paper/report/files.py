"""Find result files and check their rows.

What a row of each result file must hold to be shown: columns, and a check for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paper.defaults import DefaultsSettings, open_defaults
from paper.downstream import open_downstream, open_trainings
from paper.labels import open_labels
from paper.report.figures import SIDE
from paper.results import FORMAT_VERSION, Row, read_rows
from paper.sensitivity import open_sensitivity
from paper.settings import FULL
from paper.simulation import LATENTS, SimulationSettings, open_results
from paper.tries import open_tries
from paper.uncertainty import open_uncertainty
from varjepa.errors import InputError
from varjepa.metrics.selective import COVERAGES
from varjepa.models.inference import KINDS
from varjepa.tables.codec_json import Check, list_of, number, optional, share, text, whole

LARGEST = 1e30
"""numbers beyond it would overflow when squared, and no study writes them"""


@dataclass(frozen=True, slots=True)
class FileKind:
    """What the rows of one file must hold to be shown."""

    study: str
    """whose rows they are, as ``python -m paper`` calls it"""
    key: tuple[str, ...]
    """columns that tell rows apart"""
    columns: Mapping[str, Check]
    """every column that is shown"""
    open_strictly: Callable[[Path], Any]
    """the study's own way to open it in a folder, which refuses other settings than the full"""
    together: Callable[[Sequence[Row], str], None] = lambda rows, where: None
    """what rows must have in common"""


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where} must be a JSON object")
    return value


def check_row(row: Any, kind: FileKind, where: str) -> Row:
    """A row whose columns are what they should be; others may stand beside them."""
    given = _object(row, where)
    for name, check in kind.columns.items():
        if name not in given:
            raise InputError(f"{where} lacks {name!r}")
        check(given[name], f"{where}.{name}")
    _environment(given.get("environment", {}), f"{where}.environment")
    return given


def _environment(value: Any, where: str) -> None:
    for name, part in _object(value, where).items():
        if not isinstance(part, str | int | None):
            raise InputError(f"{where}.{name} must be text or a whole number")


def _bounded(value: Any, where: str) -> float:
    if abs(number(value, where)) > LARGEST:
        raise InputError(f"{where} must be below {LARGEST:g}")
    return float(value)


def _correlation(value: Any, where: str) -> float:
    if abs(number(value, where)) > 1:
        raise InputError(f"{where} must be between -1 and 1")
    return float(value)


def _count(value: Any, where: str) -> int:
    if not 1 <= whole(value, where) < LARGEST:
        raise InputError(f"{where} must be at least 1")
    return int(value)


def _below(*path: str) -> Check:
    """A number at the end of a path through objects."""

    def check(value: Any, where: str) -> float:
        for name in path:
            value, where = _object(value, where).get(name), f"{where}.{name}"
        return _bounded(value, where)

    return check


def _all_of(*checks: Check) -> Check:
    def check(value: Any, where: str) -> Any:
        for one in checks:
            one(value, where)
        return value

    return check


def _images(value: Any, where: str) -> Any:
    for i, image in enumerate(list_of(_object)(value, where)):
        here = f"{where}[{i}]"
        _bounded(image.get("level"), f"{here}.level")
        _bounded(image.get("u"), f"{here}.u")
        pixels = list_of(whole)(image.get("pixels"), f"{here}.pixels")
        if len(pixels) != SIDE * SIDE or not all(0 <= p <= 255 for p in pixels):
            raise InputError(f"{here}.pixels must be {SIDE * SIDE} numbers up to 255")
    return value


def _equally_long_curves(rows: Sequence[Row], where: str) -> None:
    lengths: dict[str, set[int]] = {}
    for row in rows:
        lengths.setdefault(row["variant"], set()).update(len(row[curve]) for curve in _CURVES)
    if any(len(found) > 1 for found in lengths.values()):
        raise InputError(f"{where} have curves of different lengths")


def _errors_of_classifiers(rows: Sequence[Row], where: str) -> None:
    """Only what is judged by u alone is about no classifier, and has none of its errors."""
    for i, row in enumerate(rows):
        if row["error_rate"] is None and row["arrangement"] not in ("balanced", "bound"):
            raise InputError(f"row {i} of {where} lacks the error rate of its classifier")


def _equally_many_values(rows: Sequence[Row], where: str) -> None:
    for i, row in enumerate(rows):
        n = len(row["uncertainty"])
        u = row["ambiguity"]
        if not n or len(row["wrong"]) != n or (u is not None and len(u) != n):
            raise InputError(f"row {i} of {where} has lists of different lengths")
        if u is not None and min(u) >= np.quantile(u, 0.75):
            raise InputError(f"row {i} of {where} has no row below the ambiguity's quartile")
        optional(_images)(row.get("images"), f"row {i}.images")


_FOLLOWED = ("kl_aggregate", "sigreg", "cov_deviation")
_CURVES = (*(f"{metric}_{latent}" for metric in _FOLLOWED for latent in LATENTS), "coupling")

_SCORED: dict[str, Check] = {
    "seed": whole,
    "coverage": share,
    "accuracy": share,
    "f1_macro": share,
    "f1_weighted": share,
    "test_rows": _count,
}

_HOLES = tuple(
    _below(part, name)
    for part in ("5%", "20%")
    for name in ("rmse", "mean_rmse", "accuracy", "mode_accuracy")
)
_DRAWN = tuple(
    _below(part, name)
    for part in ("drawn", "real")
    for name in ("marginal", "pairwise", "auroc")
)  # fmt: skip

FILES: Mapping[str, FileKind] = {
    "simulation.json": FileKind(
        "simulation",
        ("variant", "latent", "run"),
        {"variant": text, "latent": text, "run": whole}
        | dict.fromkeys(
            ("accuracy", "kl_aggregate", "sigreg", "cov_deviation", "mean_norm"),
            optional(_bounded),
        ),
        lambda folder: open_results(folder, SimulationSettings()),
    ),
    "epoch_diagnostics.json": FileKind(
        "simulation",
        ("variant", "run"),
        {"variant": text, "run": whole} | dict.fromkeys(_CURVES, list_of(optional(_bounded))),
        lambda folder: open_results(folder, SimulationSettings()),
        _equally_long_curves,
    ),
    "downstream.json": FileKind(
        "downstream",
        ("dataset", "representation", "predictor", "setting", "embedding_seed", "seed", "coverage"),
        dict.fromkeys(("dataset", "representation", "predictor", "setting"), text)
        | {"embedding_seed": whole}
        | _SCORED,
        lambda folder: open_downstream(folder, FULL),
    ),
    "representations.json": FileKind(
        "downstream",
        ("dataset", "model", "setting", "seed"),
        dict.fromkeys(("dataset", "model", "setting"), text)
        | dict.fromkeys(("seed", "epochs", "best_epoch"), whole)
        | dict.fromkeys(("seconds", "scale", "effective_rank", "varying_share"), _bounded),
        lambda folder: open_trainings(folder, FULL),
    ),
    "uncertainty.json": FileKind(
        "uncertainty",
        ("dataset", "setting", "embedding_seed", "arrangement", "score", "seed"),
        dict.fromkeys(("dataset", "setting", "arrangement", "score"), text)
        | {"embedding_seed": whole, "seed": whole, "latent": optional(text)}
        | {"spearman": optional(_correlation), "auroc": optional(share)}
        | {"validation_spearman": optional(_correlation)}
        | dict.fromkeys(("aurc", "aurc_trapezoid", "aurc_collapsed", "augrc"), optional(_bounded))
        | {"error_rate": optional(share)},
        lambda folder: open_uncertainty(folder, FULL),
        _errors_of_classifiers,
    ),
    "uncertainty_rows.json": FileKind(
        "uncertainty",
        ("dataset", "setting", "embedding_seed"),
        {"dataset": text, "setting": text, "embedding_seed": whole, "score": text}
        | {"uncertainty": list_of(_bounded), "wrong": list_of(share)}
        | {"ambiguity": optional(list_of(_bounded))},
        lambda folder: open_uncertainty(folder, FULL),
        _equally_many_values,
    ),
    "sensitivity.json": FileKind(
        "sensitivity",
        ("table", "column", "predictor", "seed", "coverage"),
        dict.fromkeys(("table", "column", "predictor"), text) | _SCORED,
        lambda folder: open_sensitivity(folder, FULL),
    ),
    "low_labels.json": FileKind(
        "labels",
        ("dataset", "representation", "predictor", "setting", "labels", "seed"),
        dict.fromkeys(("dataset", "representation", "predictor", "setting"), text)
        | {"labels": _count, "seed": whole, "accuracy": share},
        lambda folder: open_labels(folder, FULL),
    ),
    "tries.json": FileKind(
        "tries",
        ("dataset", "try", "predictor", "seed", "coverage"),
        dict.fromkeys(("dataset", "try", "predictor", "uncertainty"), text)
        | {"seed": whole, "best_epoch": whole, "coverage": share, "accuracy": share}
        | {"spearman": optional(_correlation)},
        lambda folder: open_tries(folder, FULL),
    ),
    "defaults.json": FileKind(
        "defaults",
        ("dataset", "selected_by", "seed"),
        {"dataset": text, "selected_by": text}
        | dict.fromkeys(("seed", "epochs", "best_epoch"), whole)
        | {
            "accuracy": _all_of(*(_below(k, f"{c:.0%}") for k in KINDS for c in COVERAGES)),
            "holes": _all_of(*_HOLES),
            "samples": _all_of(*_DRAWN),
        },
        lambda folder: open_defaults(folder, DefaultsSettings()),
    ),
}


# --- The result files of a folder, whichever studies they are of and whatever their settings.
#
# A study itself refuses rows of other settings before it adds to them. A report only reads:
# it takes
# every row whose columns are what they should be, and says where settings are not the full
# study's.


@dataclass(frozen=True, slots=True)
class FoundFile:
    """The rows of one file."""

    kind: FileKind
    rows: Sequence[Row]
    remark: str
    """a sentence where the settings are not the full study's, else empty"""


def read_results(folder: Path) -> dict[str, FoundFile]:
    """Every result file of a folder, by name; one sentence where there is none to show."""
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        raise InputError(f"the folder {folder} {what}")
    found = {
        name: _read(folder / name, kind) for name, kind in FILES.items() if (folder / name).exists()
    }
    found = {name: file for name, file in found.items() if file.rows}
    if not found:
        raise InputError(f"{folder} holds no results to report: none of {', '.join(FILES)}")
    return found


def _read(path: Path, kind: FileKind) -> FoundFile:
    try:
        rows = _checked(path, kind)
    except InputError:
        raise
    except (RecursionError, ValueError, OverflowError) as error:  # nested or digits without end
        raise InputError(f"{path} is not a JSON file this version wrote") from error
    return FoundFile(kind, rows, _remark(path, kind))


def _checked(path: Path, kind: FileKind) -> list[Row]:
    content = read_rows(path)
    if not isinstance(content, list):
        raise InputError(f"{path} is not a list of result rows")
    rows = [check_row(row, kind, f"{path}: row {i}") for i, row in enumerate(content)]
    for row in rows:
        if row.get("format_version") != FORMAT_VERSION:
            raise InputError(
                f"{path} has format version {row.get('format_version')}, this varjepa reads "
                f"{FORMAT_VERSION}"
            )
    kind.together(rows, f"{path}: its rows")
    if len({tuple(row[name] for name in kind.key) for row in rows}) < len(rows):
        raise InputError(f"{path} has two rows of one {', '.join(kind.key)}")
    return rows


def _remark(path: Path, kind: FileKind) -> str:
    """What the study itself would object to, for instance rows of a run with --quick."""
    try:
        kind.open_strictly(path.parent)
    except InputError as error:
        said = str(error)
        if str(path) in said:
            return said.replace(str(path), path.name).removesuffix("; choose another folder")
        if any(str(path.parent / other) in said for other in FILES):
            return ""  # about another file of the study
        return f"{path.name} names what this version of varjepa does not know: {said}"
    return ""
