"""Embeddings of tables larger than memory: read a block, embed it, write it, forget it.

Into one file, or into a folder of part files that a killed run continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from varjepa.errors import InputError
from varjepa.estimators.embedder import Embedder
from varjepa.files import make_folder, only_writer, remove_temporaries
from varjepa.model_folder import ModelFileError
from varjepa.scale.plan import (
    Part,
    Plan,
    describe_part,
    keep_plan,
    parts_of,
    plan_inputs,
    read_part,
)
from varjepa.tables.appending import Append, appending
from varjepa.tables.quoting import quoted
from varjepa.tables.remarks import Remarks, gathering_remarks
from varjepa.tables.streaming import StreamedTable

BATCH_BYTES = 1 << 25
"""Embeddings of a batch, which are in memory a few times over while they are made and written."""

PART_BYTES = 1 << 28
"""Embeddings of a part file: the most that a killed run computes again."""

MOST_ROWS = 1 << 14
"""Rows of a batch at most, however narrow they are."""

Progress = Callable[[int, int], None]
"""Called with the rows done and all rows."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a run did."""

    rows: int
    """embedded now"""

    rows_before: int
    """in parts that were there already"""

    seconds: float

    remarks: Remarks
    """odd values of all rows, those of finished parts too"""


def embed_to_file(
    embedder: Embedder,
    tables: Sequence[StreamedTable],
    out: Path,
    batch_rows: int | None = None,
    raw_text: bool = False,
    on_rows: Progress = lambda done, total: None,
) -> Run:
    """Embed all rows into one .parquet, .csv, .tsv, .arrow or .feather file."""
    start = time.perf_counter()
    embedder, total, extra = _checked(embedder, tables)
    size = batch_rows or default_batch_rows(embedder)
    schema = embedder.schema(tables[0].schema)
    done = 0
    with gathering_remarks() as remarks, appending(out, schema, raw_text) as append:
        for table in tables:
            for block in _Rows(embedder, table, size).take(table.rows):
                append(_embed(embedder, table, block, schema))
                done += len(block)
                on_rows(done, total)
    remarks.add(extra)
    return Run(done, 0, time.perf_counter() - start, remarks)


def embed_to_folder(
    embedder: Embedder,
    tables: Sequence[StreamedTable],
    out: Path,
    batch_rows: int | None = None,
    part_rows: int | None = None,
    on_rows: Progress = lambda done, total: None,
) -> Run:
    """Embed all rows into part files of a folder; parts that are there are not computed again.

    ``part_rows``: rows of a part at most; by default about a quarter of a gigabyte.
    """
    start = time.perf_counter()
    embedder, total, extra = _checked(embedder, tables)
    assert embedder.manifest is not None
    size = batch_rows or default_batch_rows(embedder)
    wanted = part_rows or size * max(1, PART_BYTES // embedder.row_bytes() // size)
    inputs = plan_inputs(tables)
    plan = Plan(
        embedder.manifest,
        embedder.uncertainty,
        embedder.per_column,
        embedder.keep,
        wanted,
        inputs,
    )
    make_folder(out)
    remarks = extra
    with only_writer(out):
        plan = keep_plan(out, plan, may_choose_rows=part_rows is None)
        parts = [parts_of(plan, number) for number in range(len(tables))]
        missing = [[p for p in each if not _is_done(out, plan, p, remarks)] for each in parts]
        before = done = total - sum(len(part) for each in missing for part in each)
        on_rows(done, total)
        for table, each in zip(tables, missing, strict=True):
            rows = _Rows(embedder, table, size)
            schema = embedder.schema(table.schema)
            for part in each:
                rows.go_to(part.start)
                with gathering_remarks() as found, _writing(out, plan, part, schema, found) as add:
                    for block in rows.take(len(part)):
                        add(_embed(embedder, table, block, schema))
                        done += len(block)
                        on_rows(done, total)
                remarks.add(found)
    return Run(done - before, before, time.perf_counter() - start, remarks)


def default_batch_rows(embedder: Embedder) -> int:
    """As many rows as ``BATCH_BYTES`` hold, in whole blocks of the model."""
    block = embedder.block_rows()
    wanted = min(MOST_ROWS, BATCH_BYTES // (2 * embedder.row_bytes()))  # means and deviations
    return block * max(1, wanted // block)


class _Rows:
    """The rows of one file in order, any number of them at a time, in blocks of bounded size."""

    def __init__(self, embedder: Embedder, table: StreamedTable, size: int) -> None:
        self.table, self.size = table, size
        wanted = (*embedder.keep, *embedder.needed(table.schema.names))
        self.columns = list(dict.fromkeys(wanted))  # a column may be read and kept
        self.place: int | None = None
        """of the row that comes next; None: not reading yet"""
        self.blocks: Iterator[pa.Table] = iter(())
        self.rest: pa.Table | None = None

    def go_to(self, row: int) -> None:
        """Continue at a row: at once where the last ones ended there."""
        if row != self.place:
            self.place, self.rest = row, None
            self.blocks = self.table.blocks(self.columns, self.size, row)

    def take(self, count: int) -> Iterator[pa.Table]:
        """The next ``count`` rows."""
        if self.place is None:
            self.go_to(0)
        while count:
            block = self.rest if self.rest is not None else next(self.blocks, None)
            if block is None:
                raise InputError(f"{self.table.path} has lost rows while it was read")
            piece, rest = block.slice(0, count), block.slice(count)
            self.rest = rest if len(rest) else None
            count -= len(piece)
            self.place = (self.place or 0) + len(piece)
            yield piece


def _checked(embedder: Embedder, tables: Sequence[StreamedTable]) -> tuple[Embedder, int, Remarks]:
    """An embedder of the model as it is now, the number of rows, and columns of no use.

    Columns that are missing or cannot be read are refused before any work is done.
    """
    embedder = embedder.pinned()
    remarks = Remarks()
    for table in tables:
        with _of(table):
            embedder.check(table.schema)
            remarks.add(Remarks(extra=embedder.extra(table.schema.names)))
    total = sum(table.rows for table in tables)
    if not total:
        raise InputError(f"{tables[0].path} has no rows")
    return embedder, total, remarks


def _embed(
    embedder: Embedder, table: StreamedTable, block: pa.Table, schema: pa.Schema
) -> pa.Table:
    """A block's embeddings, in the columns and types of the first file."""
    with _of(table):
        found = embedder.embed(block)
        try:
            return found.cast(schema)
        except pa.ArrowException as error:
            kinds = zip(found.schema, schema, strict=True)
            odd, kind = next((mine.name, first.type) for mine, first in kinds if mine != first)
            raise InputError(
                f"column {quoted(odd)} cannot be kept as {kind}, its type in the first file"
            ) from error


@contextmanager
def _of(table: StreamedTable) -> Iterator[None]:
    """Errors name the file, which a block does not know."""
    try:
        yield
    except ModelFileError:
        raise
    except InputError as error:
        raise InputError(f"{table.path}: {error}") from error


def _is_done(out: Path, plan: Plan, part: Part, remarks: Remarks) -> bool:
    """Whether a part is there; what was remarked then still holds."""
    found = read_part(out, plan, part)
    if found is None:
        remove_temporaries((out / part.path).parent)
        return False
    remarks.add(found)
    return True


def _writing(
    out: Path, plan: Plan, part: Part, schema: pa.Schema, remarks: Remarks
) -> AbstractContextManager[Append]:
    path = out / part.path
    make_folder(path.parent)
    return appending(path, schema, describe=lambda: describe_part(plan, remarks))
