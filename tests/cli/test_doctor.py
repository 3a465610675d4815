"""Claims about `varjepa doctor`.

1. It prints the versions of the core packages, the device, and a line for each kernel; exit code 0.
2. A package that is missing is named with the job that needs it and what to install.
3. A GPU without Triton, and one that is too old, are told apart from one that can be used.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
import torch

from tests.cli.test_shell import Captured, run
from varjepa.cli import doctor
from varjepa.nn.kernels import fused_block
from varjepa.nn.transformer import describe_kernels
from varjepa.version import __version__


def test_versions_device_and_kernels(capsys: Captured) -> None:
    assert run("doctor") == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    found = {words[0]: words[1] for words in lines if len(words) == 2}
    assert found["varjepa"] == __version__
    assert found["torch"] == torch.__version__
    assert found["pyarrow"] == version("pyarrow")
    assert found["attend_long"].startswith("yes")
    assert "device" in found


def test_all_dependencies_are_core_packages() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    needed = {re.split("[<>=]", one)[0] for one in project["dependencies"]}
    assert {*doctor.PACKAGES, "torch"} == needed


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def without_ray(package: str) -> str:
        if package == "ray":
            raise PackageNotFoundError(package)
        return "1.0"

    monkeypatch.setattr(doctor, "version", without_ray)
    assert run("doctor") == 0
    out = capsys.readouterr().out
    assert 'missing ray: pip install "varjepa[scale]"' in out
    assert out.count("missing") == 1
    assert re.search(r"evaluate, charts of demo +ready \(matplotlib 1.0, jinja2 1.0\)", out)


@pytest.mark.parametrize(
    ("has_triton", "capability", "says"),
    [(False, (9, 0), "no: Triton"), (True, (7, 5), "no: the GPU"), (True, (9, 0), "yes")],
)
def test_kernels_of_a_gpu(
    monkeypatch: pytest.MonkeyPatch, has_triton: bool, capability: tuple[int, int], says: str
) -> None:
    monkeypatch.setattr(fused_block, "_TRITON", has_triton)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert describe_kernels(torch.device("cuda"))["fused_block"].startswith(says)
