"""Claims: the paper map names only things that exist, and links lead somewhere."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SYMBOL = re.compile(r"`((?:varjepa|paper|benchmarks)(?:\.\w+)*):([\w.]+)`")


def mapped_symbols() -> list[tuple[str, str]]:
    return SYMBOL.findall((ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8"))


def test_the_map_is_not_empty() -> None:
    assert len(mapped_symbols()) >= 20


@pytest.mark.parametrize(("module", "name"), mapped_symbols())
def test_every_symbol_of_the_paper_map_exists(module: str, name: str) -> None:
    found: object = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    assert found is not None


def test_links_in_the_documentation_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} → {target}"


def test_every_test_that_the_documentation_names_exists() -> None:
    tests = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("*.py"))
    files = {p.name for p in (ROOT / "tests").rglob("*.py")}
    named = set()
    for page in (ROOT / "docs").glob("*.md"):
        named |= set(re.findall(r"`[^`\n]*?\b(test_\w+(?:\.py)?)[^`\n]*`", page.read_text("utf-8")))
    assert len(named) > 20
    for name in named:
        assert name in files if name.endswith(".py") else f"def {name}(" in tests, name
