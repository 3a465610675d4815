"""Numbers as text."""

from __future__ import annotations

from typing import SupportsFloat


def share(value: SupportsFloat) -> str:
    """An accuracy, or a difference of two."""
    return f"{float(value):.3f}".replace("-", "−")


def number(value: SupportsFloat) -> str:
    """A number of any size, about four figures.

    Examples:
        >>> [number(x) for x in (0.8125, 54.321, 12345.6, 0.00002, 0)]
        ['0.8125', '54.32', '12,346', '2.0e−05', '0']
    """
    value = float(value)
    size = abs(value)
    if size >= 1e9:
        text = f"{value:.3e}"
    elif size >= 1000:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.4g}" if size == 0 or size >= 0.0005 else f"{value:.1e}"
    return text.replace("-", "−")


def signed(text: str) -> str:
    """With a plus where there is no minus."""
    return text if text.startswith("−") else f"+{text}"
