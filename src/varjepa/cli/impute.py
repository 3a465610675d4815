"""``varjepa impute``: fill the missing cells of a table."""

from __future__ import annotations

from typing import Annotated

import typer

from varjepa.cli import options
from varjepa.errors import InputError


def impute(
    model: options.Model,
    table: options.Table,
    out: options.Out,
    samples: Annotated[
        int, typer.Option(help="1: the most likely values. More: this many random samples.", min=1)
    ] = 1,
    device: options.Device = "auto",
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    raw_text: options.RawText = False,
) -> None:
    """Fill missing cells; all others stay as they are.

    Several samples are stacked, and a column 'sample' numbers them.
    """
    options.check_paths(out, overwrite, table, model=model)

    import numpy as np
    import pyarrow as pa

    estimator = options.load_model(model, device, out)
    rows = options.read_rows(table)
    if samples > 1 and "sample" in rows.column_names:
        raise InputError(
            "the table has a column 'sample', the name of the column that numbers the samples"
        )
    if samples == 1:
        filled = estimator.impute(rows, random_state=seed)
    else:
        parts = estimator.impute_samples(rows, samples, random_state=seed)
        numbers = np.repeat(np.arange(samples), rows.num_rows)
        filled = pa.concat_tables(parts).append_column("sample", pa.array(numbers))
    options.write_result(filled, out, raw_text)
