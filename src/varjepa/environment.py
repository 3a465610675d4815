"""Where a number came from: versions, machine, commit of the sources."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import numpy
import torch

from varjepa.version import __version__


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
