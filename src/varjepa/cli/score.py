"""``varjepa score``: how typical and how uncertain every row is."""

from __future__ import annotations

from typing import Annotated

import typer

from varjepa.cli import options
from varjepa.errors import InputError


def score(
    model: options.Model,
    table: options.Table,
    out: options.Out,
    uncertainty: Annotated[
        list[str] | None, typer.Option(help=f"{options.MEASURES}. Default: the first four.")
    ] = None,
    per_column: Annotated[
        bool, typer.Option("--per-column", help="Also the uncertainty of every cell.")
    ] = False,
    keep: options.Keep = None,
    device: options.Device = "auto",
    overwrite: options.Overwrite = False,
    raw_text: options.RawText = False,
) -> None:
    """Write the uncertainty of every row, or also of cells.

    The output also has the objective and its five terms.

    With several kinds of uncertainty, --per-column writes the first one.
    """
    options.check_paths(out, overwrite, table, model=model)

    import pyarrow as pa

    words = uncertainty or ["doubtful", "unpredictable", "atypical", "ambiguous", "posterior"]
    measures = {options.parse_measure(word): word.replace("-", "_") for word in words}
    estimator = options.load_model(model, device, out)
    rows, kept = options.split_columns(options.read_rows(table), keep, estimator)
    scores = estimator.uncertainties(rows, list(measures)).values()
    columns = {
        "score": estimator.score_samples(rows),
        **estimator.score_terms(rows),
        **{f"uncertainty_{w}": u for w, u in zip(measures.values(), scores, strict=True)},
    }
    if per_column:
        cells = estimator.cell_uncertainty(rows, next(iter(measures))[0])
        read = getattr(estimator, "feature_names_in_", cells.column_names)
        columns |= {f"uncertainty:{n}": cells[n] for n in cells.column_names if n in read}
    for name in kept.column_names:
        if name in columns:
            raise InputError(f"--keep {name!r}: the output has a column of this name")
    columns = dict(zip(kept.column_names, kept.columns, strict=True)) | columns
    options.write_result(pa.table(columns), out, raw_text)
