"""``varjepa doctor``: what this machine has, and what is missing for which job."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from varjepa.cli.shell import console

PACKAGES = (
    "numpy", "scipy", "scikit-learn", "pyarrow", "narwhals", "safetensors", "rapidfuzz", "filelock",
    "typer", "rich",
)  # fmt: skip
"""The core packages but torch, which has a line of its own."""

NEEDS = (
    ("evaluate, charts of demo", ("matplotlib", "jinja2"), '"varjepa[report]"'),
    ("embed --engine ray", ("ray",), '"varjepa[scale]"'),
    ("pandas frames", ("pandas",), "pandas"),
    ("polars frames", ("polars",), "polars"),
    ("TensorBoard logs", ("tensorboard",), "tensorboard"),
)
"""A job that the core packages cannot do, the packages it needs, and what pip is to install."""


def doctor() -> None:
    """Show versions, device and kernels, and what is missing."""
    from varjepa.environment import describe_environment
    from varjepa.nn.transformer import describe_kernels
    from varjepa.settings import pick_device

    device = pick_device("auto")
    environment = describe_environment(device.type)
    _show(
        "Versions and machine",
        {
            **{name: str(environment[name]) for name in ("varjepa", "python", "torch")},
            **{name: _version(name) or "missing" for name in PACKAGES},
            "system": str(environment["system"]),
            "processor": f"{environment['processor']}; cores: {environment['cores']}",
            "device": f"{environment['device']}; threads of the CPU: {environment['threads']}",
        },
    )
    _show("Kernels on this device", describe_kernels(device))
    jobs = {}
    for job, packages, remedy in NEEDS:
        versions = {name: _version(name) for name in packages}
        absent = [name for name, number in versions.items() if number is None]
        jobs[job] = (
            f"missing {', '.join(absent)}: pip install {remedy}"
            if absent
            else f"ready ({', '.join(f'{name} {number}' for name, number in versions.items())})"
        )
    _show("Jobs that need more than the core packages", jobs)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _show(title: str, lines: dict[str, str]) -> None:
    width = max(map(len, lines))
    console.print(title)
    for name, words in lines.items():
        console.print(f"  {name:<{width}}  {words}", soft_wrap=True)
