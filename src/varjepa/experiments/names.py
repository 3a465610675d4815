"""Names that a user asks for: those there are, or one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from varjepa.datasets.catalogue import DATASETS, dataset_info
from varjepa.errors import InputError


def known(what: str, names: Sequence[str], all_of_them: Sequence[str]) -> list[str]:
    """The names asked for, in the table's order; one sentence for a name there is not."""
    for name in names:
        if name not in all_of_them:
            raise InputError(f"there is no {what} {name!r}; known are {', '.join(all_of_them)}")
    return [name for name in all_of_them if name in names]


def known_datasets(names: Sequence[str]) -> list[str]:
    """Datasets by name or by the paper's abbreviation, in the paper's order."""
    asked = {dataset_info(name).name for name in names}
    return [name for name in DATASETS if name in asked]


def file_name(words: str) -> str:
    """Words as part of a file's name.

    Examples:
        >>> file_name("High KL + low recon.")
        'High-KL---low-recon-'
    """
    return "".join(c if c.isalnum() else "-" for c in words)
