"""manifest.json: what a model folder holds, and where it was made.

It is written in one spelling only and has a checksum of the rest of itself, so that one changed
byte shows here as in any other file. A checksum finds accidents. Somebody who rewrites a file can
rewrite its checksum too, so what a file says is checked again where it is used.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from varjepa.environment import describe_arithmetic
from varjepa.model_folder.parsing import ModelFileError, dump_json, parse_json

FORMAT = "varjepa model"
FORMAT_VERSION = 2
"""1 had neither sizes, nor the environment, nor a checksum of the manifest."""

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


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was checked of a manifest."""

    files: dict[str, Listed]
    environment: dict[str, str | int]


def write_manifest(files: dict[str, Listed]) -> bytes:
    """The manifest's bytes, with the environment of this process."""
    body = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "environment": describe_arithmetic(),
        "files": {name: {"bytes": f.size, "sha256": f.sha256} for name, f in files.items()},
    }
    return dump_json({**body, "sha256": hashlib.sha256(dump_json(body)).hexdigest()})


def read_manifest(content: bytes, path: Path) -> Manifest:
    """Check every byte of a manifest."""
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
    found = hashlib.sha256(dump_json(body)).hexdigest()
    if value["sha256"] != found or dump_json(value) != content:
        raise ModelFileError(f"{path} is damaged: its own SHA-256 is another")
    listed = {name: Listed(files[name]["bytes"], files[name]["sha256"]) for name in FILES}
    return Manifest(listed, environment)


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
