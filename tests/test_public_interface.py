"""Claim: the paper, the benchmarks and the examples use the library's public names only.

No attribute of another object and no import across packages starts with an underscore.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [p for folder in ("paper", "benchmarks", "examples") for p in (ROOT / folder).rglob("*.py")]


def private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def private_uses(source: str, package: str) -> Iterator[str]:
    """What a file takes from others that is not theirs to give."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and private(node.attr):
            owner = ast.unparse(node.value)
            if owner not in ("self", "cls", "torch.ops.aten"):  # torch's operators
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            foreign = parts[0] != package
            names = [*parts, *(alias.name for alias in node.names)]
            if foreign and any(map(private, names)) and parts[0] != "_typeshed":
                yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_public_names_are_used(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    assert not list(private_uses(path.read_text(encoding="utf-8"), package))


def test_this_test_can_fail() -> None:
    source = "from varjepa.nn import _x\nmodel._begin()\nself._mine\nmodel.__class__\n"
    assert len(list(private_uses(source, "paper"))) == 2
    assert FILES
