"""Claims about docs/scale.md: its three snippets run as they stand, each where its engine is
installed, and give every row that ``varjepa embed`` gives, once.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_shell import run
from tests.scale.test_embedding import read_parts, rows_like_training, save_model, write

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
ENGINES = {"ray": "map_batches", "pyspark": "mapInPandas", "dask": "map_partitions"}
"""A package, and the word that its snippet is known by."""

LIMIT = 200.0
SMALL = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false pyspark-shell",
}
"""Environment of a snippet: small engines that keep to themselves."""


def snippets() -> dict[str, str]:
    """By engine."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    by_word = {word: block for block in blocks for word in ENGINES.values() if f".{word}(" in block}
    return {engine: by_word[word] for engine, word in ENGINES.items() if word in by_word}


def test_the_page_shows_all_of_them() -> None:
    assert snippets().keys() == ENGINES.keys()


@pytest.mark.parametrize("engine", ENGINES)
def test_snippet(engine: str, tmp_path: Path) -> None:
    if find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed")
    save_model(tmp_path / "model")
    (tmp_path / "logs").mkdir()
    table = rows_like_training(3_000, seed=6)
    for i in range(3):
        write(table.slice(1_000 * i, 1_000), tmp_path / "logs" / f"{i}.parquet")
    code = snippets()[engine]
    if engine == "ray":  # two processors, whatever the machine has
        code = f"import ray\nray.init('local', num_cpus=2, include_dashboard=False)\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, **SMALL, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    out = tmp_path / "expected"
    arguments = ["embed", tmp_path / "model", tmp_path / "logs", "--out", out, "--keep", "id"]
    assert run(*arguments) == 0
    expected, found = read_parts(out), read_parts(tmp_path / "embedded").sort_by("id")
    assert found["id"].to_pylist() == list(range(len(table)))
    names = [name for name in found.column_names if not name.startswith("__")]  # an index
    assert names == expected.column_names
    for name in names:
        assert found[name].type == expected[name].type
        np.testing.assert_array_equal(found[name].to_numpy(), expected[name].to_numpy())
