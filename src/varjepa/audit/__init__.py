"""Which cells of a table look wrong, what they should be, and how sure that is.

The package is its own function: ``varjepa.audit(df)``.
"""

import sys
from types import ModuleType
from typing import Any

from varjepa.audit.result import Audit
from varjepa.audit.run import audit

__all__ = ["Audit", "audit"]


class _Audit(ModuleType):
    """A package that can be called, since the function and the package have one name."""

    def __call__(self, *arguments: Any, **options: Any) -> Audit:
        return audit(*arguments, **options)


_Audit.__call__.__doc__ = audit.__doc__
sys.modules[__name__].__class__ = _Audit
