"""A safetensors file of unknown origin, read a piece at a time and never held twice.

The layout: 8 bytes that count the header's, a JSON header that gives each tensor its type, shape
and place, then the tensors one after the other. All of the header is checked, and can be compared
with the networks it should fill, before room is made for a single number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from varjepa.model_folder.parsing import ModelFileError, parse_json

_LARGEST_HEADER = 16 << 20
_PIECE = 1 << 20
"""numbers read at a time"""

_TYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}


@dataclass(frozen=True, slots=True)
class Kind:
    """What a tensor is, without its numbers."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> Kind:
        return cls(tensor.dtype, tuple(tensor.shape))

    @property
    def size(self) -> int:
        """In bytes; exact however large the shape."""
        return math.prod(self.shape) * self.dtype.itemsize


class WeightFile(Mapping[str, Tensor]):
    """The tensors of an open file; each is read when it is asked for."""

    def __init__(self, file: BinaryIO, size: int, path: Path) -> None:
        self.file, self.path = file, path
        length = int.from_bytes(file.read(8), "little")
        if length > min(size - 8, _LARGEST_HEADER):
            raise self._refuse("its header is longer than the file or than 16 MB")
        header = parse_json(file.read(length), path)
        if not isinstance(header, dict):
            raise self._refuse("its header is no JSON object")
        header.pop("__metadata__", None)  # remarks, which nothing here reads
        places = {name: self._place(entry) for name, entry in header.items()}
        self.kinds = {name: kind for name, (kind, _, _) in places.items()}
        self._check_places([(start, end) for _, start, end in places.values()], size - 8 - length)
        self.starts = {name: 8 + length + start for name, (_, start, _) in places.items()}

    def __getitem__(self, name: str) -> Tensor:
        kind = self.kinds[name]
        tensor = torch.empty(kind.shape, dtype=kind.dtype)
        self.read_into(name, tensor)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self.kinds)

    def __len__(self) -> int:
        return len(self.kinds)

    @torch.no_grad()
    def read_into(self, name: str, tensor: Tensor) -> None:
        """Fill a contiguous tensor of the same kind; what is not finite is refused."""
        assert Kind.of(tensor) == self.kinds[name]
        self.file.seek(self.starts[name])
        for piece in tensor.view(-1).split(_PIECE) if tensor.numel() else ():
            content = bytearray(self.file.read(piece.numel() * piece.dtype.itemsize))
            if len(content) < piece.numel() * piece.dtype.itemsize:
                raise self._refuse("it ends too soon")
            numbers = torch.frombuffer(content, dtype=piece.dtype)
            if not bool(numbers.isfinite().all()):
                raise self._refuse(f"{name[:80]!r} has weights that are not finite")
            piece.copy_(numbers)

    def _place(self, entry: Any) -> tuple[Kind, int, int]:
        """Type and shape, first byte and the one after the last."""
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise self._refuse("a tensor has not exactly a type, a shape and a place")
        shape, offsets = entry["shape"], entry["data_offsets"]
        if not (isinstance(entry["dtype"], str) and entry["dtype"] in _TYPES):
            raise self._refuse("a tensor has a type that networks do not have")
        if not (_are_counts(shape) and _are_counts(offsets) and len(offsets) == 2):
            raise self._refuse("a shape or a place is not made of whole numbers")
        kind = Kind(_TYPES[entry["dtype"]], tuple(shape))
        if offsets[1] - offsets[0] != kind.size:
            raise self._refuse("a tensor's place is not as large as its shape")
        return kind, offsets[0], offsets[1]

    def _check_places(self, places: list[tuple[int, int]], size: int) -> None:
        end = 0
        for start, stop in sorted(places):
            if start != end:
                raise self._refuse("tensors overlap or leave gaps")
            end = stop
        if end != size:
            raise self._refuse("its tensors do not fill it")

    def _refuse(self, reason: str) -> ModelFileError:
        return ModelFileError(f"{self.path} is not a safetensors file to load: {reason}")


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(
        type(item) is int and 0 <= item < 2**63 for item in value
    )
