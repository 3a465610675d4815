"""The rows of one file, read and embedded a block at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from varjepa.errors import InputError
from varjepa.estimators.embedder import Embedder
from varjepa.model_folder import ModelFileError
from varjepa.tables.quoting import quoted
from varjepa.tables.streaming import StreamedTable


class Rows:
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


def embed_block(
    embedder: Embedder, table: StreamedTable, block: pa.Table, schema: pa.Schema
) -> pa.Table:
    """A block's embeddings, in the columns and types of the first file."""
    with naming(table):
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
def naming(table: StreamedTable) -> Iterator[None]:
    """Errors name the file, which a block does not know."""
    try:
        yield
    except ModelFileError:
        raise
    except InputError as error:
        raise InputError(f"{table.path}: {error}") from error
