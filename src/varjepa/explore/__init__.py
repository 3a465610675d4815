"""A page on which the rows of a table can be explored.

The package is its own function: ``varjepa.explore(model, df)``.
"""

import sys
from types import ModuleType
from typing import Any

from varjepa.explore.page_data import ExploreData
from varjepa.explore.run import explore

__all__ = ["ExploreData", "explore"]


class _Explore(ModuleType):
    """A package that can be called, since the function and the package have one name."""

    def __call__(self, *arguments: Any, **options: Any) -> ExploreData:
        return explore(*arguments, **options)


_Explore.__call__.__doc__ = explore.__doc__
sys.modules[__name__].__class__ = _Explore
