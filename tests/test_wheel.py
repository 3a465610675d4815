"""Claims about what ``pip install`` brings.

1. The wheel holds the library alone, with its types and templates, and is small. A wheel built from
   the source distribution holds the same bytes.
2. In an environment that has its dependencies and nothing else, outside the repository, it imports,
   helps, fits, fills, and runs ``demo --quick``, whose report then has no charts.
3. It fits and embeds without ``fcntl``, without Triton and without a compiler.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib.metadata import distribution, distributions
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

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


def needed(requirements: list[str]) -> set[str]:
    """The distributions that pip would install, without extras."""
    names: set[str] = set()
    asked = [*requirements]
    while asked:
        one = Requirement(asked.pop())
        if one.name not in names and (one.marker is None or one.marker.evaluate({"extra": ""})):
            names.add(one.name)
            asked += distribution(one.name).requires or []
    return names


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, and links to its dependencies as they are installed here."""
    folder = tmp_path_factory.mktemp("environment")
    call(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder)
    python = folder / "bin" / "python"
    install = ("-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index")
    call(sys.executable, *install, wheel, folder=folder)
    (site,) = folder.glob("lib/*/site-packages")
    (installed,) = distributions(name="varjepa", path=[str(site)])
    for name in needed(installed.requires or []):
        for file in distribution(name).files or []:
            top, link = Path(sysconfig.get_paths()["purelib"]) / file.parts[0], site / file.parts[0]
            if file.parts[0] not in ("..", "__pycache__") and not link.exists():
                link.symlink_to(top)
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with a table."""
    rng = np.random.default_rng(0)
    with (tmp_path / "table.csv").open("w", newline="") as file:
        rows = zip(rng.normal(size=50), rng.choice(["x", "y", ""], 50), strict=True)
        csv.writer(file).writerows([("a", "b"), *rows])
    return tmp_path


def test_the_wheel_holds_the_library_alone(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"varjepa"}
    assert "varjepa/py.typed" in names
    assert any(name.endswith(".html.j2") for name in names)
    for page in ("report/interactive", "audit/audit", "explore/explore"):
        assert {f"varjepa/{page}.{ending}" for ending in ("html", "css", "js")} <= set(names)
    assert wheel.stat().st_size < 1_000_000


def test_the_source_distribution_gives_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    build = (sys.executable, "-m", "hatchling", "build", "-d", tmp_path)
    call(*build, "-t", "sdist", folder=ROOT)
    (packed,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    call(*build, "-t", "wheel", folder=tmp_path / packed.name.removesuffix(".tar.gz"))
    (other,) = tmp_path.glob("*.whl")

    def content(path: Path) -> dict[str, bytes]:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    assert content(other) == content(wheel)


def test_it_works_with_its_dependencies_alone(environment: Path, outside: Path) -> None:
    python, varjepa = environment / "bin" / "python", environment / "bin" / "varjepa"
    extras = ["matplotlib", "pandas", "polars", "ray", "xgboost", "pytest"]
    look = f"print(varjepa.__file__, *map(find_spec, {extras}))"
    imports = "import varjepa; from importlib.util import find_spec; "
    place, *found = call(python, "-c", imports + look, folder=outside).split()
    assert place.startswith(str(environment))
    assert found == ["None"] * len(extras)
    assert "impute" in call(varjepa, "--help", folder=outside)
    call(varjepa, "fit", "table.csv", "--out", "model", "--epochs", "2", folder=outside)
    call(varjepa, "impute", "model", "table.csv", "--out", "filled.csv", folder=outside)
    with (outside / "filled.csv").open(newline="") as file:
        assert all(row["b"] in ("x", "y") for row in csv.DictReader(file))
    out = call(varjepa, "demo", "--quick", "--rows", "100", "--epochs", "1", folder=outside)
    assert "open demo/report.html;" in out
    found_there = {path.name for path in (outside / "demo").iterdir()}
    assert found_there == {"report.html", "demo.json", "audit", "explore.html"}
    assert "no charts without matplotlib" in (outside / "demo" / "report.html").read_text("utf-8")


WITHOUT = """
import sys
for module in ("fcntl", "triton", "matplotlib", "jinja2"):
    sys.modules[module] = None
from varjepa import Training, VarTJEPA
model = VarTJEPA(training=Training(max_steps=2), random_state=0).fit("table.csv")
print(*model.transform("table.csv").shape)
"""


def test_it_fits_without_fcntl_triton_or_a_compiler(environment: Path, outside: Path) -> None:
    python = environment / "bin" / "python"
    rows, columns = call(python, "-W", "ignore", "-c", WITHOUT, folder=outside, PATH="").split()
    assert (rows, int(columns) > 0) == ("50", True)
