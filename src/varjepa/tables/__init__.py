"""Any table in, encoded tensors, and a table out again."""

from varjepa.tables.codec import EncodedTable, TableCodec, infer_schema
from varjepa.tables.columns import KINDS, Column, Feature, Kind, Marginal, TableSchema
from varjepa.tables.describe import TableDescription, describe_codec, describe_table
from varjepa.tables.reading import read_table
from varjepa.tables.scaling import SCALINGS, Scaling
from varjepa.tables.streaming import TableFiles
from varjepa.tables.writing import check_extension, write_table

__all__ = [
    "KINDS",
    "SCALINGS",
    "Column",
    "EncodedTable",
    "Feature",
    "Kind",
    "Marginal",
    "Scaling",
    "TableCodec",
    "TableDescription",
    "TableFiles",
    "TableSchema",
    "check_extension",
    "describe_codec",
    "describe_table",
    "infer_schema",
    "read_table",
    "write_table",
]
