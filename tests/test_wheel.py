"""Claims about what ``pip install`` brings.

1. The wheel holds the library alone, with its types and templates, and is small.
2. In an environment of its own, outside the repository, it imports, helps, fits, fills and loads.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]


def call(*command: object, folder: Path, **variables: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder)
    call(sys.executable, *build, ROOT, folder=folder)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_the_library_alone(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"varjepa"}
    assert "varjepa/py.typed" in names
    assert any(name.endswith(".html.j2") for name in names)
    for page in ("report/interactive", "audit/audit", "explore/explore"):
        assert {f"varjepa/{page}.{ending}" for ending in ("html", "css", "js")} <= set(names)
    assert wheel.stat().st_size < 1_000_000


def test_it_works_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    environment, outside = tmp_path / "env", tmp_path / "outside"
    outside.mkdir()
    call(sys.executable, "-m", "venv", "--without-pip", environment, folder=tmp_path)
    python = environment / "bin" / "python"
    install = ("-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index")
    call(sys.executable, *install, wheel, folder=tmp_path)
    # its dependencies are the ones here; the package itself is not on this path
    libraries = sysconfig.get_paths()["purelib"]

    def run(*command: object) -> str:
        return call(*command, folder=outside, PYTHONPATH=libraries)

    place = run(python, "-c", "import varjepa; print(varjepa.__file__)")
    assert place.startswith(str(environment))
    varjepa = environment / "bin" / "varjepa"
    assert "impute" in run(varjepa, "--help")
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=50), "b": rng.choice(["x", "y", None], 50)})
    table.to_csv(outside / "table.csv", index=False)
    run(varjepa, "fit", "table.csv", "--out", "model", "--epochs", "2")
    run(varjepa, "impute", "model", "table.csv", "--out", "filled.csv")
    assert pd.read_csv(outside / "filled.csv")["b"].notna().all()
