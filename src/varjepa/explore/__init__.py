"""A page on which the rows of a table can be explored.

The package is its own function: ``varjepa.explore(model, df)``.
"""

from varjepa.callable_package import make_callable
from varjepa.explore.page import ExploreData
from varjepa.explore.run import explore

__all__ = ["ExploreData", "explore"]

make_callable(__name__, explore)
