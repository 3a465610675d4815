"""Arguments that several commands share, and what becomes of them: paths, models, tables.

Paths are checked before torch and pyarrow are imported, so that a typing error costs no waiting.
"""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from varjepa.cli.shell import console, one_of
from varjepa.errors import InputError
from varjepa.files import make_folder

if TYPE_CHECKING:
    import pyarrow as pa

    from varjepa.estimators import VarTJEPA

Model = Annotated[Path, typer.Argument(help="A model folder that `varjepa fit` wrote.")]
Table = Annotated[Path, typer.Argument(help="A .csv, .csv.gz, .parquet, .arrow or .feather file.")]
Tables = Annotated[
    str, typer.Argument(help='A table, a folder of .parquet files, or a pattern: "logs/*.parquet".')
]
Out = Annotated[
    Path, typer.Option(help="File to write; the extension picks CSV, Parquet or Arrow.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Let --out replace an existing model or an input.")
]
Keep = Annotated[
    list[str] | None, typer.Option(help="Columns to copy into the output, such as an id.")
]
MEASURES = (
    "doubtful, inconsistent, unpredictable, atypical, ambiguous, posterior (the paper's), "
    "predictive, surprise or nll; also nll-balanced, nll-q90, …"
)
Kinds = Annotated[
    list[str] | None, typer.Option(help="Override a column's kind, e.g. zip=categorical.")
]
Seed = Annotated[int, typer.Option(help="Random seed.", min=0, max=2**32 - 1)]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
RawText = Annotated[
    bool, typer.Option("--raw-text", help="CSV: no quote before text that looks like a formula.")
]


# --- paths


def check_source(source: str | Path) -> None:
    """Refuse a table that is not there: a file, a folder, or a pattern without a match."""
    text = str(source)
    if Path(text).exists() or "://" in text:  # an address is refused where tables are read
        return
    if not glob.has_magic(text):
        raise InputError(f"cannot read {text}: No such file or directory")
    if not _matches(text):
        raise InputError(f"no file matches {text}")


def check_model(folder: Path) -> None:
    if not folder.exists():
        raise InputError(f"cannot read the model folder {folder}: No such file or directory")
    if not folder.is_dir():
        raise InputError(f"{folder} is not a model folder: it is a file")
    if not (folder / "manifest.json").exists():
        why = "it has no manifest.json"
        if (folder / "checkpoints").is_dir():
            why = "its fit has not finished; the same command with --resume continues it"
        raise InputError(f"{folder} is not a model folder: {why}")


def check_paths(
    out: Path, overwrite: bool, table: str | Path | None, model: Path | None = None
) -> None:
    """Refuse what is not there, and an output that would replace an input."""
    if model is not None:
        check_model(model)
        if out.exists() and out.samefile(model):
            raise InputError(f"--out {out} is the model folder; name another")
    if table is None:
        return
    check_source(table)
    path, files = Path(table), _matches(str(table))
    if path.exists():
        files = [path, *path.rglob("*.parquet")] if path.is_dir() else [path]
    if not overwrite and out.exists() and any(file.samefile(out) for file in files):
        raise InputError(f"--out {out} is an input; add --overwrite to replace it")


def _matches(pattern: str) -> list[Path]:
    return [Path(match) for match in glob.glob(pattern, recursive=True)]  # noqa: PTH207


# --- models and tables


def load_model(folder: Path, device: str, out: Path) -> VarTJEPA:
    """The model, once the output is known to be something we can write."""
    from varjepa.estimators import VarTJEPA
    from varjepa.tables import check_extension

    check_extension(out)
    make_folder(out.parent)
    return VarTJEPA.load(folder).set_params(device=device)


def read_rows(path: Path) -> pa.Table:
    """A table with at least one row; without any, the error names the file."""
    from varjepa.tables import read_table

    table = read_table(path)
    if table.num_columns and not table.num_rows:
        raise InputError(f"{path} has no rows")
    return table


def write_result(table: pa.Table, out: Path, raw_text: bool) -> None:
    from varjepa.tables import write_table

    write_table(table, out, raw_text)
    console.print(f"{table.num_rows:,} rows in {out}", soft_wrap=True)


def split_columns(
    rows: pa.Table, keep: list[str] | None, model: VarTJEPA
) -> tuple[pa.Table, pa.Table]:
    """The columns for the model, and those that are copied into the output."""
    from varjepa.tables.messages import quoted, suggestion

    kept = list(dict.fromkeys(keep or ()))
    for name in kept:
        if name not in rows.column_names:
            close = suggestion(name, rows.column_names)
            raise InputError(f"--keep {quoted(name)} is not a column of the table{close}")
    read = getattr(model, "feature_names_in_", ())
    return rows.drop_columns([name for name in kept if name not in read]), rows.select(kept)


def parse_measure(word: str) -> tuple[Any, Any]:
    """``nll-balanced``: a kind of uncertainty, and how a row's values are aggregated.

    Without the second, the kind's usual one.
    """
    from varjepa.models.inference import AGGREGATES, LATENT_KINDS, QUESTIONS, default_aggregate

    name, dash, aggregate = word.partition("-")
    kind: Any = one_of("--uncertainty", name, (*QUESTIONS, *LATENT_KINDS))
    if not dash:
        return kind, default_aggregate(kind)
    return kind, one_of(f"--uncertainty {kind}-AGGREGATE:", aggregate, AGGREGATES[kind])


def parse_kinds(words: list[str] | None) -> dict[str, Any]:
    """``zip=categorical`` and so on, by column."""
    from varjepa.tables import KINDS

    kinds = {}
    for word in words or []:
        name, equals, kind = word.rpartition("=")
        if not equals or kind not in KINDS:
            raise InputError(f"--kind {word!r} is not COLUMN=KIND with one of {', '.join(KINDS)}")
        kinds[name] = kind
    return kinds
