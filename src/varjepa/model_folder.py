"""A model folder: JSON and safetensors with SHA-256 sums, read without trusting a byte."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy
import torch
from safetensors.torch import save
from torch import Tensor

from varjepa.errors import InputError
from varjepa.files import make_folder, write_bytes
from varjepa.version import __version__

_FREE, _TIMES = 180 << 20, 5
"""What a file may take when it is parsed: 180 MB more than its size, or five times its size."""

_WIDTHS = ((re.compile(rb"[\xf0-\xff]"), 4), (re.compile(rb"[\xc4-\xef]"), 2))
"""First bytes of characters for which Python gives every character of a text so many bytes."""


class ModelFileError(InputError):
    """A model folder that is damaged, incomplete, of another version or no model at all."""


def parse_json(content: bytes, path: Path, weights_size: int = 0) -> Any:
    """The value a file holds, or a sentence that names the file.

    ``weights_size`` is that of the weights that come with it: a model of a million categories has
    only large files.
    """
    if _memory(content) > max(_FREE + len(content), _TIMES * len(content)) + weights_size:
        raise ModelFileError(f"{path} holds more values than a model of its size has")
    try:
        return json.loads(
            content.decode(), object_pairs_hook=_distinct, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is not JSON that varjepa wrote") from error


def dump_json(value: dict[str, Any]) -> bytes:
    """One value, one spelling."""
    return (json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode()


def _memory(content: bytes) -> int:
    """At most what content, text and value take: three characters can become a list of 56 bytes."""
    width = next((width for wide, width in _WIDTHS if wide.search(content)), 1)
    objects, lists, values = (content.count(mark) for mark in (b"{", b"[", b","))
    texts = content.count(b'"') // 2
    characters = (1 + 2 * width) * len(content)
    return characters + 300 * objects + 64 * lists + 42 * values + 56 * texts


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    distinct = dict(pairs)
    if len(distinct) < len(pairs):
        raise ValueError("the same key twice")
    return distinct


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not a number")


# --- weights: a safetensors file of unknown origin
#
# 8 bytes that count the header's, a JSON header that gives each tensor its type, shape and place,
# then the tensors one after the other. All of the header is checked, and can be compared with the
# networks it should fill, before memory is taken for a single number. Each piece is read once.

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
class TensorKind:
    """What a tensor is, without its numbers."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> TensorKind:
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
        header.pop("__metadata__", None)  # not read
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
        assert TensorKind.of(tensor) == self.kinds[name]
        self.file.seek(self.starts[name])
        for piece in tensor.view(-1).split(_PIECE) if tensor.numel() else ():
            content = bytearray(self.file.read(piece.numel() * piece.dtype.itemsize))
            if len(content) < piece.numel() * piece.dtype.itemsize:
                raise self._refuse("it ends too soon")
            numbers = torch.frombuffer(content, dtype=piece.dtype)
            if not bool(numbers.isfinite().all()):
                raise self._refuse(f"{name[:80]!r} has weights that are not finite")
            piece.copy_(numbers)

    def _place(self, entry: Any) -> tuple[TensorKind, int, int]:
        """Type and shape, first byte and the one after the last."""
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise self._refuse("a tensor has not exactly a type, a shape and a place")
        shape, offsets = entry["shape"], entry["data_offsets"]
        if not (isinstance(entry["dtype"], str) and entry["dtype"] in _TYPES):
            raise self._refuse("a tensor has a type that networks do not have")
        if not (_are_counts(shape) and _are_counts(offsets) and len(offsets) == 2):
            raise self._refuse("a shape or a place is not made of integers")
        kind = TensorKind(_TYPES[entry["dtype"]], tuple(shape))
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


# --- manifest.json: what a model folder holds, and where it was made
#
# It is written in one spelling only and has a checksum of the rest of itself, so that one changed
# byte shows here as in any other file. A checksum finds accidents. An attacker can rewrite a file
# and its checksum, so what a file says is checked again where it is used.

FORMAT = "varjepa model"
FORMAT_VERSION = 6
"""1 had neither sizes, nor the environment, nor a checksum of the manifest; 2, of varjepa 0.1, had
other constructor parameters in config.json; 3 had neither bins
and steps of numbers nor columns left out in codec.json; 4 had no training rows in config.json."""

MANIFEST = "manifest.json"
FILES = ("config.json", "codec.json", "model.safetensors")
LARGEST_MANIFEST = 1 << 16

_KEYS = {"format", "version", "environment", "files", "sha256"}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_WORDS = re.compile(r"[\w.+ ()-]{1,100}", re.ASCII)
_LARGEST_FILE = 1 << 50


@dataclass(frozen=True, slots=True)
class Listed:
    """What the manifest says of one file."""

    size: int
    sha256: str


def describe_arithmetic() -> dict[str, str | int]:
    """What the last bits of a result depend on, besides the seed."""
    return {
        "varjepa": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def compare_arithmetic(other: Mapping[str, str | int]) -> str | None:
    """How another environment differs in what moves the last bits of an embedding, in words.

    Those are torch's version, whichever build of it, the system and the CPU's instructions; Python,
    numpy and the number of threads move none.
    """
    there, here = (
        f"torch {str(environment.get('torch')).split('+')[0]} on {environment.get('system')} "
        f"({environment.get('instructions')})"
        for environment in (other, describe_arithmetic())
    )
    return None if there == here else f"{there}, not {here}"


def write_manifest(files: dict[str, Listed]) -> bytes:
    """The manifest's bytes, with the environment of this process."""
    body = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "environment": describe_arithmetic(),
        "files": {name: {"bytes": f.size, "sha256": f.sha256} for name, f in files.items()},
    }
    return dump_json({**body, "sha256": hashlib.sha256(dump_json(body)).hexdigest()})


def read_manifest(content: bytes, path: Path) -> tuple[dict[str, Listed], dict[str, str | int]]:
    """Files and environment of a manifest of which every byte was checked."""
    folder = path.parent
    value = parse_json(content, path)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ModelFileError(f"{folder} is not a varjepa model")
    version = value.get("version")
    if type(version) is not int or not 0 < version < 10**6:
        raise ModelFileError(f"{folder} is not a varjepa model of any format version")
    if version != FORMAT_VERSION:
        raise ModelFileError(
            f"{folder} has format version {version}, this varjepa reads {FORMAT_VERSION}; "
            "fit the model again"
        )
    files, environment = value.get("files"), value.get("environment")
    if not isinstance(files, dict) or set(files) != set(FILES):
        raise ModelFileError(f"{path} does not list {', '.join(FILES)}, and only them")
    if not (
        set(value) == _KEYS
        and all(map(_is_listed, files.values()))
        and isinstance(environment, dict)
        and _is_plain(environment)
    ):
        raise ModelFileError(f"{path} is damaged: it is not laid out as a manifest")
    body = {key: item for key, item in value.items() if key != "sha256"}
    own_sum = hashlib.sha256(dump_json(body)).hexdigest()
    if value["sha256"] != own_sum or dump_json(value) != content:
        raise ModelFileError(f"{path} is damaged: its own SHA-256 is another")
    listed = {name: Listed(files[name]["bytes"], files[name]["sha256"]) for name in FILES}
    return listed, environment


def _is_listed(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == {"bytes", "sha256"}
        and type(value["bytes"]) is int
        and 0 <= value["bytes"] <= _LARGEST_FILE
        and isinstance(value["sha256"], str)
        and _SHA256.fullmatch(value["sha256"]) is not None
    )


def _is_plain(environment: dict[str, Any]) -> bool:
    """Few short words, which are safe to show."""
    words = [*environment, *environment.values()]
    return len(environment) <= 20 and all(
        _WORDS.fullmatch(word) if isinstance(word, str) else type(word) is int and 0 <= word < 10**6
        for word in words
    )


# --- the folder: written whole; nothing of it is used before it is checked


@dataclass(frozen=True, slots=True)
class SavedModel:
    config: dict[str, Any]
    codec: dict[str, Any]
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A model folder whose files are what its manifest says, the weights still on disk."""

    config: Any
    """whatever the JSON file holds: its checksum fits, its content is not checked yet"""
    codec: Any
    weights: WeightFile
    environment: dict[str, str | int]
    """where it was saved"""


def save_model(folder: Path, model: SavedModel) -> None:
    """Write a model folder; an old manifest goes first, so that two models are never mixed."""
    make_folder(folder)
    contents = {
        "config.json": dump_json(model.config),
        "codec.json": dump_json(model.codec),
        "model.safetensors": save({k: v.contiguous().cpu() for k, v in model.tensors.items()}),
    }
    (folder / MANIFEST).unlink(missing_ok=True)
    for name, content in contents.items():
        write_bytes(folder / name, content)
    listed = {
        name: Listed(len(content), hashlib.sha256(content).hexdigest())
        for name, content in contents.items()
    }
    write_bytes(folder / MANIFEST, write_manifest(listed))


@contextmanager
def open_model(folder: Path) -> Iterator[OpenModel]:
    """Check a model folder and hold its weights open, or say in one sentence what is wrong.

    Only the three known names are ever opened, whatever the manifest says. They may be links (as in
    a download cache) to regular files, whose content is checked like any other.
    """
    with ExitStack() as stack:
        manifest_path = folder / MANIFEST
        with _opened(manifest_path) as file:
            content = file.read(LARGEST_MANIFEST + 1)
        if len(content) > LARGEST_MANIFEST:
            raise ModelFileError(f"{manifest_path} is larger than {LARGEST_MANIFEST:,} bytes")
        listed, environment = read_manifest(content, manifest_path)
        files = {name: stack.enter_context(_opened(folder / name)) for name in FILES}
        for name, file in files.items():
            _check(file, listed[name], folder / name)
        size = listed["model.safetensors"].size
        config, codec = (
            parse_json(files[name].read(listed[name].size), folder / name, size)
            for name in ("config.json", "codec.json")
        )
        weights = WeightFile(files["model.safetensors"], size, folder / "model.safetensors")
        yield OpenModel(config, codec, weights, environment)


def load_model(folder: Path) -> SavedModel:
    with open_model(folder) as model:
        return SavedModel(model.config, model.codec, dict(model.weights))


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    """Open a regular file and nothing else: a pipe would wait, a device would never end."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        why = f"cannot read {path}: {error.strerror}"
        folder = path.parent
        if path.name == MANIFEST and folder.is_file():
            why = f"{folder} is not a model folder: it is a file"
        elif path.name == MANIFEST and isinstance(error, FileNotFoundError):
            why = f"{folder} is not a model folder: it has no {MANIFEST}"
            if not folder.exists():
                why = f"cannot read the model folder {folder}: {error.strerror}"
        raise ModelFileError(why) from error
    except ValueError as error:  # a path with a NUL in it
        raise ModelFileError(f"{str(path)!r} is not a path") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ModelFileError(f"{path} is not a regular file")
    with os.fdopen(handle, "rb") as file:
        yield file


def _check(file: BufferedReader, listed: Listed, path: Path) -> None:
    """Size and SHA-256, without holding the file in memory; then back to its start."""
    size = os.fstat(file.fileno()).st_size
    if size != listed.size:
        raise ModelFileError(
            f"{path} is damaged: it has {size:,} bytes, the manifest says {listed.size:,}"
        )
    if hashlib.file_digest(file, "sha256").hexdigest() != listed.sha256:
        raise ModelFileError(f"{path} is damaged: its SHA-256 is not the manifest's")
    file.seek(0)
