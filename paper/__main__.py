"""python -m paper: every study of the paper as one command."""

from __future__ import annotations

from paper import commands, everything
from varjepa.cli import shell

commands.add_tabular(commands.reproduce)
commands.add_beyond(commands.reproduce)
commands.reproduce.command("all", cls=shell.ListCommand)(everything.everything)
commands.reproduce.command("report", cls=shell.ListCommand)(commands.report)
commands.reproduce.command("datasets")(commands.datasets)


def main(arguments: list[str] | None = None) -> None:
    """The entry point."""
    shell.run(commands.reproduce, arguments)


if __name__ == "__main__":
    main()
