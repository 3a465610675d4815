"""The ``varjepa`` command with tables streamed from the first row on; run as a script.

The first argument is the number of bytes of a window, or "as-is" to change nothing; the rest is the
command's. A last line of the output says how much memory the process took at its peak.
"""

from __future__ import annotations

import sys

from benchmarks.measures import peak_resident_mb
from varjepa.cli import main
from varjepa.estimators import fitting
from varjepa.training import streamed_rows

if __name__ == "__main__":
    if sys.argv[1] != "as-is":
        fitting.MAX_CELLS_IN_MEMORY = 0
        streamed_rows.WINDOW_BYTES = int(sys.argv[1])
    try:
        main(sys.argv[2:])
    finally:
        sys.stdout.write(f"peak {peak_resident_mb():.1f} MB\n")
