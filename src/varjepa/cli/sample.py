"""``varjepa sample``: new rows like those of the table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from varjepa.cli import options


def sample(
    model: options.Model,
    out: options.Out,
    given: Annotated[
        Path | None, typer.Argument(help="A table with values of some columns to condition on.")
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(help="Number of rows. Default: 100, or as many as GIVEN has.", min=1),
    ] = None,
    device: options.Device = "auto",
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    raw_text: options.RawText = False,
) -> None:
    """Sample new rows, whole or conditional on some columns."""
    options.check_paths(out, overwrite, given, model=model)

    from varjepa.tables import read_table

    estimator = options.load_model(model, device, out)
    fixed = None if given is None else options.read_rows(given)
    count = rows or (100 if fixed is None else fixed.num_rows)
    sampled = estimator.sample(count, given=fixed, random_state=seed)
    options.write_result(read_table(sampled), out, raw_text)
