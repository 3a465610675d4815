"""Embed tables of any size: read a block, embed it, write it.

Into one file, or into a folder of part files that a killed run continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from varjepa.errors import InputError
from varjepa.estimators.embedder import Embedder
from varjepa.files import make_folder, only_writer, remove_temporaries
from varjepa.scale.plan import (
    Part,
    Plan,
    PlannedInput,
    describe_part,
    keep_plan,
    parts_of,
    read_part,
)
from varjepa.tables.messages import TableWarnings, collect_warnings, quoted
from varjepa.tables.streaming import ForwardRows, StreamedTable, naming
from varjepa.tables.writing import appending


def open_rows(embedder: Embedder, table: StreamedTable, size: int) -> ForwardRows:
    """The rows of one file, at most ``size`` at a time: the columns that are read or kept."""
    wanted = (*embedder.keep, *embedder.needed(table.schema.names))
    columns = list(dict.fromkeys(wanted))  # a column may be read and kept
    return ForwardRows(table.path, lambda row: table.blocks(columns, size, row))


def embed_block(
    embedder: Embedder, table: StreamedTable, block: pa.Table, schema: pa.Schema
) -> pa.Table:
    """A block's embeddings, in the columns and types of the first file."""
    with naming(table.path):
        embeddings = embedder.embed(block)
        try:
            return embeddings.cast(schema)
        except pa.ArrowException as error:
            kinds = zip(embeddings.schema, schema, strict=True)
            odd, kind = next((mine.name, first.type) for mine, first in kinds if mine != first)
            raise InputError(
                f"column {quoted(odd)} cannot be kept as {kind}, its type in the first file"
            ) from error


BATCH_BYTES = 1 << 25
"""Embeddings of a batch, which are in memory a few times over while they are made and written."""

PART_BYTES = 1 << 28
"""Embeddings of a part file: the most that a killed run computes again."""

MOST_ROWS = 1 << 14
"""Rows of a batch at most, however narrow they are."""

Progress = Callable[[int, int], None]
"""Called with the rows done and all rows."""

Report = Callable[[int, TableWarnings], None]
"""Called with rows that were done just now, and what was odd about a part that is finished."""


@dataclass(frozen=True, slots=True)
class Work:
    """A folder in the making: what every process that computes parts of it has to know."""

    embedder: Embedder
    tables: tuple[StreamedTable, ...]
    out: Path
    plan: Plan
    batch_rows: int


Engine = Callable[[Work, Sequence[Part], Report], None]
"""Computes parts, in any order and anywhere, so that each is written once and whole."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a run did."""

    rows: int
    """embedded now"""
    rows_before: int
    """in parts that were there already"""
    seconds: float
    warnings: TableWarnings
    """odd values of all rows, those of finished parts too"""


def embed_to_file(
    embedder: Embedder,
    tables: Sequence[StreamedTable],
    out: Path,
    batch_rows: int | None = None,
    raw_text: bool = False,
    on_rows: Progress = lambda done, total: None,
) -> RunSummary:
    """Embed all rows into one .parquet, .csv, .tsv, .arrow or .feather file."""
    start = time.perf_counter()
    embedder, total, extra = _checked(embedder, tables)
    size = batch_rows or default_batch_rows(embedder)
    schema = embedder.schema(tables[0].schema)
    done = 0
    with collect_warnings() as warnings, appending(out, schema, raw_text) as append:
        for table in tables:
            for block in open_rows(embedder, table, size).take(0, table.rows):
                append(embed_block(embedder, table, block, schema))
                done += len(block)
                on_rows(done, total)
    warnings.add(extra)
    return RunSummary(done, 0, time.perf_counter() - start, warnings)


def this_process(work: Work, missing: Sequence[Part], report: Report) -> None:
    """The engine that needs nothing else: one part after the other, each file read once."""
    for number, parts in groupby(missing, key=lambda part: part.number):
        rows = open_rows(work.embedder, work.tables[number], work.batch_rows)
        for part in parts:
            embed_part(work, part, rows, report)


def embed_part(
    work: Work,
    part: Part,
    rows: ForwardRows | None = None,
    report: Report = lambda done, warnings: None,
) -> None:
    """Compute and write one part, from the open rows of its file where there are any."""
    table = work.tables[part.number]
    rows = rows or open_rows(work.embedder, table, work.batch_rows)
    schema = work.embedder.schema(table.schema)
    path = work.out / part.path
    make_folder(path.parent)
    with (
        collect_warnings() as collected,
        appending(path, schema, describe=lambda: describe_part(work.plan, collected)) as append,
    ):
        for block in rows.take(part.start, part.stop):
            append(embed_block(work.embedder, table, block, schema))
            report(len(block), TableWarnings())
    report(0, collected)


def embed_to_folder(
    embedder: Embedder,
    tables: Sequence[StreamedTable],
    out: Path,
    batch_rows: int | None = None,
    part_rows: int | None = None,
    on_rows: Progress = lambda done, total: None,
    engine: Engine = this_process,
) -> RunSummary:
    """Embed all rows into part files of a folder; parts that are there are not computed again.

    ``part_rows``: rows of a part at most; by default about a quarter of a gigabyte. ``engine``: who
    computes them; by default this process. One engine goes on with what another has begun.
    """
    start = time.perf_counter()
    embedder, total, extra = _checked(embedder, tables)
    assert embedder.manifest is not None
    size = batch_rows or default_batch_rows(embedder)
    wanted = part_rows or size * max(1, PART_BYTES // embedder.row_bytes() // size)
    plan = Plan(
        embedder.manifest,
        embedder.uncertainty + (f"-{embedder.aggregate}" if embedder.aggregate else ""),
        embedder.per_column,
        embedder.keep,
        wanted,
        tuple(PlannedInput(t.name, t.bytes, t.rows, t.fingerprint) for t in tables),
    )
    make_folder(out)
    warnings = extra
    with only_writer(out):
        plan = keep_plan(out, plan, may_choose_rows=part_rows is None)
        parts = [part for number in range(len(tables)) for part in parts_of(plan, number)]
        missing = []
        for part in parts:
            finished = read_part(out, plan, part)
            if finished is None:
                remove_temporaries((out / part.path).parent)
                missing.append(part)
            else:
                warnings.add(finished)
        before = done = total - sum(map(len, missing))
        on_rows(done, total)

        def report(rows: int, new: TableWarnings) -> None:
            nonlocal done
            done += rows
            warnings.add(new)
            on_rows(done, total)

        if missing:
            work = Work(embedder, tuple(tables), out, plan, size)
            engine(work, missing, report)
    return RunSummary(done - before, before, time.perf_counter() - start, warnings)


def default_batch_rows(embedder: Embedder) -> int:
    """As many rows as ``BATCH_BYTES`` hold, in whole blocks of the model."""
    block = embedder.block_rows()
    wanted = min(MOST_ROWS, BATCH_BYTES // (2 * embedder.row_bytes()))  # means and deviations
    return block * max(1, wanted // block)


def _checked(
    embedder: Embedder, tables: Sequence[StreamedTable]
) -> tuple[Embedder, int, TableWarnings]:
    """An embedder of the model as it is now, the number of rows, and columns of no use.

    Columns that are missing or cannot be read are refused before any work is done.
    """
    embedder = embedder.pinned()
    warnings = TableWarnings()
    for table in tables:
        with naming(table.path):
            embedder.check(table.schema)
            warnings.add(TableWarnings(extra=embedder.extra(table.schema.names)))
    total = sum(table.rows for table in tables)
    if not total:
        raise InputError(f"{tables[0].path} has no rows")
    return embedder, total, warnings
