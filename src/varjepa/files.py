"""Files that are either whole or not there."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from varjepa.errors import InputError, Interrupted

_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}\.tmp", re.DOTALL)
"""How :func:`replacing` calls its files: the middle is what mkstemp makes up."""


def make_folder(folder: Path) -> None:
    """Create a folder, or say in one sentence why results cannot be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        why = "it is a file" if isinstance(error, FileExistsError) else error.strerror
        raise InputError(f"cannot write to the folder {folder}: {why}") from error


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold a folder's lock: two processes rewriting one file would lose each other's rows."""
    path = folder / ".varjepa.lock"
    try:
        with FileLock(path, timeout=0):
            try:
                yield
            finally:
                with suppress(OSError):  # Windows does not remove an open file
                    path.unlink()
    except Timeout as error:
        raise InputError(f"another varjepa process is writing to {folder}") from error


@contextmanager
def study_folder(folder: Path) -> Iterator[None]:
    """Make and lock the folder of a study; an interruption says that nothing is lost."""
    try:
        make_folder(folder)
        with only_writer(folder):
            yield
    except KeyboardInterrupt as stop:
        raise Interrupted(
            f"interrupted; finished cells are in {folder}, and the same command goes on from there"
        ) from stop


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Replace a file atomically: a reader sees the old content or the new, never half.

    Yields a temporary file in the same folder to write to; then fsync, rename, fsync of the folder,
    so that after a power cut the name points to a complete file.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        _sync(temporary)
        temporary.chmod(0o666 & ~_umask())  # mkstemp made it private
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def remove_temporaries(folder: Path) -> None:
    """Remove what :func:`replacing` left behind where its process was killed."""
    for path in folder.glob(".*.tmp"):
        if _TEMPORARY.fullmatch(path.name):  # the folder may be the user's own
            path.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


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


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
