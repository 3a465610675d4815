"""Markdown files whose numbers come from result files, with words of their own in between.

    <!-- generated: headline -->
    whatever stands here is replaced
    <!-- end -->

Everything outside such blocks is left as it is. What each block holds is in ``blocks``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from varjepa.errors import InputError
from varjepa.report.blocks import TITLE, build_blocks
from varjepa.report.page import write_report
from varjepa.report.study_files import read_results

BLOCK = re.compile(r"^<!-- generated: ([\w-]+) -->\n(.*?)^<!-- end -->$", re.DOTALL | re.MULTILINE)
MARK = re.compile(r"<!-- (?:generated:|end)")


def write_document(folder: Path, path: Path) -> None:
    """Fill the blocks of a file from a results folder; one that is not there gets all of them."""
    blocks = build_blocks(read_results(folder))
    text = fill(read_document(path), blocks, path.name) if path.exists() else fresh(blocks)
    write_report(text, path)


def read_document(path: Path) -> str:
    """The text of a Markdown file."""
    try:
        return path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, IsADirectoryError) as error:
        raise InputError(f"{path} is not a Markdown file") from error


def fill(text: str, blocks: Mapping[str, str], name: str) -> str:
    r"""The text with every block replaced; refused where the marks do not fit.

    Examples:
        >>> text = "Mine.\n<!-- generated: a -->\nold\n<!-- end -->\n"
        >>> print(fill(text, {"a": "new"}, "x.md"), end="")
        Mine.
        <!-- generated: a -->
        new
        <!-- end -->
    """
    found = list(BLOCK.finditer(text))
    if not found:
        raise InputError(
            f"{name} has no block to fill: lines <!-- generated: NAME --> and <!-- end -->, NAME "
            f"one of {', '.join(blocks)}"
        )
    if len(MARK.findall(text)) != 2 * len(found):
        raise InputError(f"{name} has a generated block that does not begin or end")
    for block in found:
        if block[1] not in blocks:
            raise InputError(
                f"{name} asks for the block {block[1]!r}; known are {', '.join(blocks)}"
            )
    return BLOCK.sub(lambda block: _block(block[1], blocks[block[1]]), text)


def fresh(blocks: Mapping[str, str]) -> str:
    """A document of all blocks and nothing else."""
    parts = [f"# {TITLE}", *(_block(name, body) for name, body in blocks.items())]
    return "\n\n".join(parts) + "\n"


def _block(name: str, body: str) -> str:
    return f"<!-- generated: {name} -->\n{body}\n<!-- end -->"
