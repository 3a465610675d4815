"""What a folder of embeddings is made of: written down before the work, so that it can continue.

The plan names the model, the options and every input file. From it follow the part files: one per
input, of the same name, or where an input is large a folder of that name with parts in order. A
part is either there, whole, or not yet. So a run that was killed continues by finding which parts
are there, and nothing else has to be kept in step.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from varjepa.errors import InputError
from varjepa.files import read_json, write_json
from varjepa.tables.messages import TableWarnings, shortened

PLAN_FILE = "_varjepa_plan.json"
"""An underscore in front: engines that read the folder leave such files alone."""

FORMAT = "varjepa embedding plan"
VERSION = 2
_KEY = b"varjepa"


@dataclass(frozen=True, slots=True)
class PlannedInput:
    """What an input file must still be when a run continues."""

    name: str
    bytes: int
    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that the content of the folder depends on."""

    model: str
    """SHA-256 of the model's manifest."""
    uncertainty: str
    per_column: bool
    keep: tuple[str, ...]
    part_rows: int
    """Rows of a part file at most."""
    inputs: tuple[PlannedInput, ...]

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION, **asdict(self)}

    @property
    def identity(self) -> str:
        """A name for this plan alone, which every part carries."""
        return hashlib.sha256(json.dumps(self.to_json()).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive rows of one input, and the file for their embeddings."""

    number: int
    """Of the input, in the plan's order."""
    path: str
    """Within the folder."""
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def parts_of(plan: Plan, number: int) -> list[Part]:
    """The parts of input ``number``, in order."""
    table, size = plan.inputs[number], plan.part_rows
    name = table.name if table.name.endswith(".parquet") else f"{table.name}.parquet"
    if table.rows <= size:
        return [Part(number, name, 0, table.rows)]
    folder = "" if len(plan.inputs) == 1 else f"{name}/"
    starts = range(0, table.rows, size)
    return [
        Part(number, f"{folder}part-{i:05d}.parquet", start, min(table.rows, start + size))
        for i, start in enumerate(starts)
    ]


def keep_plan(folder: Path, plan: Plan, may_choose_rows: bool) -> Plan:
    """Write the plan into a new folder, or check that the folder was begun with the same.

    ``may_choose_rows``: the size of parts was not given, so that of the existing plan will do.
    """
    _refuse_clashes(plan)
    path = folder / PLAN_FILE
    if not path.exists():
        if any(not path.name.startswith(".") for path in folder.iterdir()):
            raise InputError(f"{folder} is not empty, and holds no embeddings to continue")
        write_json(path, plan.to_json())
        return plan
    begun = _read(path)
    if may_choose_rows:
        plan = replace(plan, part_rows=begun.part_rows)
    if begun != plan:
        raise InputError(f"{folder} was begun {_difference(begun, plan)}; choose another --out")
    return plan


def describe_part(plan: Plan, warnings: TableWarnings) -> dict[str, str]:
    """What a part says about itself in its metadata."""
    said = {"plan": plan.identity, "warnings": asdict(warnings)}
    return {_KEY.decode(): json.dumps(said)}


def read_part(folder: Path, plan: Plan, part: Part) -> TableWarnings | None:
    """Warnings of a finished part; None if it is not there yet."""
    path = folder / part.path
    if not path.exists():
        return None
    try:
        metadata = pa.parquet.read_metadata(path)
        said = json.loads((metadata.metadata or {})[_KEY])
        if said["plan"] == plan.identity and metadata.num_rows == len(part):
            return TableWarnings(**said["warnings"])
    except (KeyError, TypeError, ValueError, OSError, pa.ArrowException):
        pass
    raise InputError(f"{path} is not a part of these embeddings; remove it or choose another --out")


def _read(path: Path) -> Plan:
    fields = read_json(path)
    try:
        if (fields.pop("format"), fields.pop("version")) != (FORMAT, VERSION):
            raise ValueError
        inputs = tuple(PlannedInput(**one) for one in fields.pop("inputs"))
        return Plan(**{**fields, "keep": tuple(fields["keep"])}, inputs=inputs)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not a plan that this version wrote") from error


def _refuse_clashes(plan: Plan) -> None:
    """Two inputs whose parts would have one name: t.csv and t.csv.parquet."""
    owners: dict[str, str] = {}
    for number, table in enumerate(plan.inputs):
        first = parts_of(plan, number)[0].path
        name = first if len(plan.inputs) == 1 else first.removesuffix("/part-00000.parquet")
        other = owners.setdefault(name, table.name)
        if other != table.name:
            raise InputError(
                f"the embeddings of {shortened(other)} and {shortened(table.name)} would be one "
                f"file, {shortened(name)}; give them other names or one --out each"
            )


def _difference(begun: Plan, plan: Plan) -> str:
    """What is not as it was, with the words that follow "was begun"."""
    if begun.model != plan.model:
        return "with another model"
    for option in ("uncertainty", "per_column", "keep", "part_rows"):
        if getattr(begun, option) != getattr(plan, option):
            return f"with another --{option.replace('_', '-')}"
    before, now = ({one.name: one for one in p.inputs} for p in (begun, plan))
    for name in sorted(before.keys() | now.keys()):
        if name not in now or name not in before:
            return f"{'with' if name in before else 'without'} {shortened(name)}"
        if before[name] != now[name]:
            return f"when {shortened(name)} had other content"
    return "with its files in another order"
