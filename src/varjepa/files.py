"""Files that are either whole or not there."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from varjepa.errors import InputError


def make_folder(folder: Path) -> None:
    """Create a folder, or say in one sentence why results cannot be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"cannot write to the folder {folder}: {error.strerror}") from error


def write_text(path: Path, text: str) -> None:
    """Replace a file's content atomically: a reader sees the old text or the new, never half.

    Temporary file in the same folder, fsync, rename, fsync of the folder; after a power cut the
    name points to a complete file.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())  # mkstemp made it private
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically, a line per element of a list, so that version control shows rows."""
    if isinstance(value, list) and value:
        lines = ",\n".join(json.dumps(item, allow_nan=False, ensure_ascii=False) for item in value)
        write_text(path, f"[\n{lines}\n]\n")
    else:
        write_text(path, json.dumps(value, allow_nan=False, ensure_ascii=False, indent=1) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON, or say in one sentence that the file is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} is not a JSON file this version wrote") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
