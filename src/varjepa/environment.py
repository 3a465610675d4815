"""The machine: which device computes, and where a number came from (versions, commit)."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy
import torch

from varjepa.errors import InputError
from varjepa.version import __version__


def pick_device(name: str) -> torch.device:
    """The device asked for; "auto" takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device {name!r} is not auto, cpu or cuda") from error
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device {name!r} is not auto, cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {name!r} was asked for, but torch sees no GPU")
    return device


def describe_environment(device: str = "cpu") -> dict[str, str | int | None]:
    """What a reader needs to assess a timing or to repeat a run on ``device``."""
    return {
        "varjepa": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device != "cpu" else device,
    }


def describe_arithmetic() -> dict[str, str | int]:
    """What the last bits of a result depend on, besides the seed."""
    return {
        "varjepa": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def compare_arithmetic(other: Mapping[str, str | int]) -> str | None:
    """How another environment differs in what moves the last bits of an embedding, in words.

    Those are torch's version, whichever build of it, the system and the CPU's instructions; Python,
    numpy and the number of threads move none.
    """
    there, here = (
        f"torch {str(environment.get('torch')).split('+')[0]} on {environment.get('system')} "
        f"({environment.get('instructions')})"
        for environment in (other, describe_arithmetic())
    )
    return None if there == here else f"{there}, not {here}"


def _commit() -> str | None:
    """The commit of the source checkout, with a + when files differ from it.

    Where there is no repository, in a container or on a lent machine, ``VARJEPA_COMMIT`` says which
    it was; None if nobody does.
    """
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return os.environ.get("VARJEPA_COMMIT") or None
    try:
        head = _git(root, "rev-parse", "--short=12", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "src")
    except (OSError, subprocess.SubprocessError):
        return None
    return head + ("+" if changed else "")


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
