"""Write a model folder whole; open one so that nothing is used before it is checked."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from varjepa.files import make_folder, write_bytes
from varjepa.model_folder.manifest import (
    FILES,
    LARGEST_MANIFEST,
    Listed,
    read_manifest,
    write_manifest,
)
from varjepa.model_folder.parsing import ModelFileError, dump_json, parse_json
from varjepa.model_folder.weights import WeightFile


@dataclass(frozen=True, slots=True)
class SavedModel:
    """The content of a model folder."""

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
    """Write a model folder; an old manifest goes first, so no moment mixes two models."""
    make_folder(folder)
    contents = {
        "config.json": dump_json(model.config),
        "codec.json": dump_json(model.codec),
        "model.safetensors": save({k: v.contiguous().cpu() for k, v in model.tensors.items()}),
    }
    (folder / "manifest.json").unlink(missing_ok=True)
    for name, content in contents.items():
        write_bytes(folder / name, content)
    listed = {
        name: Listed(len(content), hashlib.sha256(content).hexdigest())
        for name, content in contents.items()
    }
    write_bytes(folder / "manifest.json", write_manifest(listed))


@contextmanager
def open_model(folder: Path) -> Iterator[OpenModel]:
    """Check a model folder and hold its weights open, or say in one sentence what is wrong.

    Only the three known names are ever opened, whatever the manifest says. They may be links (as in
    a download cache) to regular files, whose content is checked like any other.
    """
    with ExitStack() as stack:
        manifest_path = folder / "manifest.json"
        with _opened(manifest_path) as file:
            manifest = read_manifest(_read(file, LARGEST_MANIFEST, manifest_path), manifest_path)
        files = {name: stack.enter_context(_opened(folder / name)) for name in FILES}
        for name, file in files.items():
            _check(file, manifest.files[name], folder / name)
        size = manifest.files["model.safetensors"].size
        config, codec = (
            parse_json(files[name].read(manifest.files[name].size), folder / name, beside=size)
            for name in ("config.json", "codec.json")
        )
        weights = WeightFile(files["model.safetensors"], size, folder / "model.safetensors")
        yield OpenModel(config, codec, weights, manifest.environment)


def load_model(folder: Path) -> SavedModel:
    """The whole content of a model folder."""
    with open_model(folder) as model:
        return SavedModel(model.config, model.codec, dict(model.weights))


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    """Open a regular file and nothing else: a pipe would wait, a device would never end."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:  # a path with a NUL in it
        raise ModelFileError(f"{str(path)!r} is not a path") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ModelFileError(f"{path} is not a regular file")
    with os.fdopen(handle, "rb") as file:
        yield file


def _read(file: BufferedReader, most: int, path: Path) -> bytes:
    content = file.read(most + 1)
    if len(content) > most:
        raise ModelFileError(f"{path} is larger than {most:,} bytes")
    return content


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
