"""Claim: the report gives today's tables and findings, cell by cell, from the committed results of
all settings.

``values.json`` was written before the redesign, and the setting "default" was added later. A
deliberate change of a table or of results is a change of that file:
``python -m tests.paper.test_values``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from paper.report import block_markdown, build_blocks, read_results

FILE = Path(__file__).with_name("values.json")
RESULTS = Path(__file__).parents[2] / "paper" / "results"

NUMBER = re.compile(r"[+-]?\.?\d[\d.,]*")


def values() -> dict[str, Any]:
    blocks = build_blocks(read_results(RESULTS))
    return {b.name: parse(block_markdown(b)) for b in blocks}


def parse(block: str) -> dict[str, Any]:
    """Cells of the tables as text, findings as text, and every number outside of both.

    Without typography: emphasis, the unit of a difference, the form of the minus sign.
    """
    block = block.replace("*", "").replace(" σ)", ")").replace("−", "-")
    found: dict[str, Any] = {"tables": [], "findings": [], "numbers": []}
    before = ""
    for text in block.splitlines():
        if text.startswith("|"):
            if not before.startswith("|"):
                found["tables"].append([])
            if not re.fullmatch(r"[| -]*", text):
                found["tables"][-1].append([cell.strip() for cell in text[1:-1].split("|")])
        elif text.startswith("- "):
            found["findings"].append(text[2:])
        elif not text.startswith("#"):
            found["numbers"] += [n.rstrip(".,") for n in NUMBER.findall(text)]
        before = text
    return found


def write() -> None:
    blocks = [
        f' {json.dumps(name)}: {{\n  "tables": [\n'
        + ",\n".join(
            "   [\n    "
            + ",\n    ".join(json.dumps(row, ensure_ascii=False) for row in table)
            + "\n   ]"
            for table in block["tables"]
        )
        + '\n  ],\n  "findings": '
        + json.dumps(block["findings"], ensure_ascii=False, indent=3).replace("\n]", "\n  ]")
        + f',\n  "numbers": {json.dumps(block["numbers"])}\n }}'
        for name, block in values().items()
    ]
    FILE.write_text("{\n" + ",\n".join(blocks) + "\n}\n", encoding="utf-8")


def test_every_cell_and_finding_is_what_it_was() -> None:
    then, now = json.loads(FILE.read_text(encoding="utf-8")), values()
    assert list(now) == list(then)
    for name, block in then.items():
        for part, before in block.items():
            assert now[name][part] == before, (name, part)


if __name__ == "__main__":
    write()
