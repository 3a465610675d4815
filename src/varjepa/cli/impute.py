"""``varjepa impute``: fill the missing cells of a table."""

from __future__ import annotations

from typing import Annotated

import typer

from varjepa.cli.options import (
    Device,
    Model,
    Out,
    Overwrite,
    RawText,
    Seed,
    Table,
    check_model,
    check_out,
    check_source,
    load_model,
    read_rows,
    write_result,
)
from varjepa.cli.shell import positive, seed_number
from varjepa.errors import InputError


def impute(
    model: Model,
    table: Table,
    out: Out,
    samples: Annotated[
        int, typer.Option(help="1: the most likely values. More: this many random samples.")
    ] = 1,
    device: Device = "auto",
    seed: Seed = 0,
    overwrite: Overwrite = False,
    raw_text: RawText = False,
) -> None:
    """Fill missing cells; all other cells and columns stay as they are.

    Several samples are stacked, and a column 'draw' numbers them.
    """
    count, random_state = positive("--samples", samples), seed_number(seed)
    check_model(model)
    check_source(table)
    check_out(out, [table], overwrite)

    import numpy as np
    import pyarrow as pa

    estimator = load_model(model, device, out)
    rows = read_rows(table)
    if count > 1 and "draw" in rows.column_names:
        raise InputError("the table has a column 'draw', the name that numbers the samples")
    if count == 1:
        filled = estimator.impute(rows, random_state=random_state)
    else:
        parts = estimator.impute_samples(rows, count, random_state=random_state)
        numbers = np.repeat(np.arange(count), rows.num_rows)
        filled = pa.concat_tables(parts).append_column("draw", pa.array(numbers))
    write_result(filled, out, raw_text)
