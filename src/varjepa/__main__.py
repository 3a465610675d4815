"""``python -m varjepa`` is the ``varjepa`` command."""

from varjepa.cli import main

main()
