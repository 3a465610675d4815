"""One results folder from several: rows that other machines or sessions have finished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from varjepa.errors import InputError
from varjepa.experiments.results import ResultFile
from varjepa.files import make_folder, only_writer

Open = Callable[[Path], Sequence[ResultFile]]
"""Opens the files of one study in a folder; refuses rows of other settings."""


def merge_folders(folder: Path, sources: Sequence[Path], open_files: Open) -> int:
    """Take every row whose key is not in the folder yet, earlier sources first; how many.

    Only rows: embeddings and models stay where they are, and finished cells do not need them.
    """
    opened = []
    for source in sources:
        files = open_files(source)
        if not any(file.rows for file in files):
            names = " or ".join(file.path.name for file in files)
            raise InputError(f"{source} has no rows to merge in {names}")
        opened.append(files)
    make_folder(folder)
    taken = 0
    with only_writer(folder):
        for number, target in enumerate(open_files(folder)):
            fresh = {target.layout.key_of(row): row for row in target.rows}
            before = set(fresh)
            for files in opened:
                for row in files[number].rows:
                    fresh.setdefault(target.layout.key_of(row), row)
            if fresh.keys() != before:
                target.add(list(fresh.values()))
            taken += len(fresh) - len(before)
    return taken
