"""The rows of one file, read and embedded a block at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from varjepa.errors import InputError
from varjepa.estimators.embedder import Embedder
from varjepa.model_folder import ModelFileError
from varjepa.tables.forward import ForwardRows
from varjepa.tables.quoting import quoted
from varjepa.tables.streaming import StreamedTable


def open_rows(embedder: Embedder, table: StreamedTable, size: int) -> ForwardRows:
    """The rows of one file, at most ``size`` at a time: the columns that are read or kept."""
    wanted = (*embedder.keep, *embedder.needed(table.schema.names))
    columns = list(dict.fromkeys(wanted))  # a column may be read and kept
    return ForwardRows(table.path, lambda row: table.blocks(columns, size, row))


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
