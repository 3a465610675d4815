"""Which cells of a table look wrong, what they should be, and how sure that is.

The package is its own function: ``varjepa.audit(df)``.
"""

from varjepa.audit.result import Audit
from varjepa.audit.run import audit
from varjepa.callable_package import make_callable

__all__ = ["Audit", "audit"]

make_callable(__name__, audit)
