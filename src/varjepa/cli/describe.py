"""``varjepa describe``: what is inferred of a table, or what a model was fitted to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from varjepa.cli.options import Kinds, check_source, parse_kinds, read_rows
from varjepa.cli.shell import console
from varjepa.errors import InputError


def describe(
    source: Annotated[
        str,
        typer.Argument(help="A table, a folder or pattern of .parquet files, or a model folder."),
    ],
    kind: Kinds = None,
) -> None:
    """Show what is inferred of every column, and what to check.

    Kind, values, missing cells; of a model also how its training went.
    """
    check_source(source)
    path = Path(source)
    is_model = (path / "manifest.json").exists()
    if is_model and kind:
        raise InputError(f"--kind is for tables, and {path} is a model")
    if path.is_dir() and not is_model and not any(path.rglob("*.parquet")):
        raise InputError(
            f"{path} is not a model folder (it has no manifest.json) and holds no .parquet file"
        )
    lines = describe_model(path) if is_model else describe_source(source, parse_kinds(kind))
    for line in lines:
        console.print(line, soft_wrap=True)


def describe_model(folder: Path) -> list[str]:
    """Its columns as they were in training, and how the training went."""
    from varjepa.estimators import TJEPA, VarTJEPA
    from varjepa.estimators.summary import training_words, wrapped
    from varjepa.model_folder import open_model

    with open_model(folder) as saved:
        name = saved.config.get("estimator") if isinstance(saved.config, dict) else None
    model: Any = (TJEPA if name == "TJEPA" else VarTJEPA).load(folder)
    return [
        *model.describe().lines(),
        f"{name}: epoch {model.best_epoch_} of {len(model.history_)} was selected",
        wrapped("fit", training_words(model)),
    ]


def describe_source(source: str, kinds: dict[str, Any]) -> list[str]:
    """What a fit would infer; files that are several or large are read a block at a time."""
    from varjepa.estimators.fitting import fit_codec, table_files
    from varjepa.estimators.frames import refuse_too_little
    from varjepa.tables import TableCodec
    from varjepa.tables.describe import describe_codec
    from varjepa.tables.messages import collect_warnings

    files = table_files(source)
    if files is None:
        table = read_rows(Path(source))
        with collect_warnings():
            codec, rows = TableCodec.fit(table, kinds), table.num_rows
    else:
        codec, rows = fit_codec(files, kinds, "min_max", 1000), files.rows
    lines = describe_codec(codec, rows).lines()
    try:
        refuse_too_little(codec, rows)
    except InputError as error:
        lines.append(f"A fit refuses this table: {error}.")
    return lines
