"""A model on disk: config.json, model.safetensors, codec.json and manifest.json.

Nothing in it can run code: JSON and raw tensors only. The manifest has a SHA-256 of every other
file, because safetensors loads flipped bits without a word. It is written last, so a folder with a
manifest is a whole one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from varjepa.errors import InputError
from varjepa.files import make_folder, write_bytes

FORMAT = "varjepa model"
FORMAT_VERSION = 1
_FILES = ("config.json", "codec.json", "model.safetensors")


class ModelFileError(InputError):
    """A model folder that is damaged, incomplete or of another version."""


@dataclass(frozen=True, slots=True)
class SavedModel:
    """The content of a model folder."""

    config: dict[str, Any]
    codec: dict[str, Any]
    tensors: dict[str, Tensor]


def save_model(folder: Path, model: SavedModel) -> None:
    """Write a model folder; an old manifest goes first, so no moment mixes two models."""
    make_folder(folder)
    contents = {
        "config.json": _dump(model.config),
        "codec.json": _dump(model.codec),
        "model.safetensors": save({k: v.contiguous().cpu() for k, v in model.tensors.items()}),
    }
    (folder / "manifest.json").unlink(missing_ok=True)
    for name, content in contents.items():
        write_bytes(folder / name, content)
    manifest = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
    }
    write_bytes(folder / "manifest.json", _dump(manifest))


def load_model(folder: Path) -> SavedModel:
    """Read a model folder back, or say in one sentence what is wrong with it."""
    manifest = _json(folder / "manifest.json", _read(folder / "manifest.json"))
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelFileError(f"{folder} is not a varjepa model")
    if manifest.get("version") != FORMAT_VERSION:
        raise ModelFileError(
            f"{folder} has format version {manifest.get('version')}, this varjepa reads "
            f"{FORMAT_VERSION}"
        )
    sums = manifest.get("sha256")
    if not isinstance(sums, dict) or set(sums) != set(_FILES):
        raise ModelFileError(f"the manifest of {folder} does not list {', '.join(_FILES)}")
    contents = {name: _read(folder / name) for name in _FILES}
    for name, content in contents.items():
        if hashlib.sha256(content).hexdigest() != sums[name]:
            raise ModelFileError(f"{folder / name} is damaged: its SHA-256 is not the manifest's")
    try:
        tensors = load(contents["model.safetensors"])
    except SafetensorError as error:
        raise ModelFileError(f"{folder / 'model.safetensors'} is not a safetensors file") from error
    return SavedModel(
        config=_json(folder / "config.json", contents["config.json"]),
        codec=_json(folder / "codec.json", contents["codec.json"]),
        tensors=tensors,
    )


def _dump(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}") from error


def _json(path: Path, content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise ModelFileError(f"{path} is not JSON") from error
