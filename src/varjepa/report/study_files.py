"""The result files of a folder, whichever studies they are of and whatever their settings.

A study itself refuses rows of other settings before it adds to them. A report only reads: it takes
every row whose columns are what they should be, and says where settings are not the full study's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from varjepa.errors import InputError
from varjepa.experiments.results import FORMAT_VERSION, Row, read_rows
from varjepa.report.study_columns import FILES, FileKind, check_row


@dataclass(frozen=True, slots=True)
class FoundFile:
    """The rows of one file."""

    kind: FileKind
    rows: Sequence[Row]
    remark: str
    """a sentence where the settings are not the full study's, else empty"""


def read_results(folder: Path) -> dict[str, FoundFile]:
    """Every result file of a folder, by name; one sentence where there is none to show."""
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        raise InputError(f"the folder {folder} {what}")
    found = {
        name: _read(folder / name, kind) for name, kind in FILES.items() if (folder / name).exists()
    }
    found = {name: file for name, file in found.items() if file.rows}
    if not found:
        raise InputError(f"{folder} holds no results to report: none of {', '.join(FILES)}")
    return found


def _read(path: Path, kind: FileKind) -> FoundFile:
    try:
        rows = _checked(path, kind)
    except InputError:
        raise
    except (RecursionError, ValueError, OverflowError) as error:  # nested or digits without end
        raise InputError(f"{path} is not a JSON file this version wrote") from error
    return FoundFile(kind, rows, _remark(path, kind))


def _checked(path: Path, kind: FileKind) -> list[Row]:
    content = read_rows(path)
    if not isinstance(content, list):
        raise InputError(f"{path} is not a list of result rows")
    rows = [check_row(row, kind, f"{path}: row {i}") for i, row in enumerate(content)]
    for row in rows:
        if row.get("format_version") != FORMAT_VERSION:
            raise InputError(
                f"{path} has format version {row.get('format_version')}, this varjepa reads "
                f"{FORMAT_VERSION}"
            )
    kind.together(rows, f"{path}: its rows")
    if len({tuple(row[name] for name in kind.key) for row in rows}) < len(rows):
        raise InputError(f"{path} has two rows of one {', '.join(kind.key)}")
    return rows


def _remark(path: Path, kind: FileKind) -> str:
    """What the study itself would object to, for instance rows of a run with --quick."""
    try:
        kind.open_strictly(path.parent)
    except InputError as error:
        said = str(error)
        if str(path) in said:
            return said.replace(str(path), path.name).removesuffix("; choose another folder")
        if any(str(path.parent / other) in said for other in FILES):
            return ""  # about another file of the study
        return f"{path.name} names what this version of varjepa does not know: {said}"
    return ""
