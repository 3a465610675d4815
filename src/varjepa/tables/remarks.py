"""What one call found odd but could live with: collected by column, said once."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field


@dataclass(slots=True)
class Remarks:
    """Counts of odd cells by column; columns without any are not kept."""

    infinite: dict[str, int] = field(default_factory=dict)
    """±inf in numeric columns."""

    unseen: dict[str, int] = field(default_factory=dict)
    """Levels that training never saw, and numbers in columns that were empty in training."""

    extra: list[str] = field(default_factory=list)
    """Columns that were not there in training."""

    def warn(self, stacklevel: int) -> None:
        """At most one warning for each of the three."""
        messages = []
        if self.extra:
            messages.append(
                "ignored columns that were not there when the codec was fitted: "
                + ", ".join(map(repr, self.extra))
            )
        for what, cells in (
            ("infinite values", self.infinite),
            ("values that were not seen when the codec was fitted", self.unseen),
        ):
            found = [f"{name!r} ({count})" for name, count in cells.items() if count]
            if found:
                messages.append(f"treated as missing: {what}, in {', '.join(found)}")
        for message in messages:
            warnings.warn(message, UserWarning, stacklevel=stacklevel + 1)
