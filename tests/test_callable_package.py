"""Claim: help and signature of ``varjepa.audit`` and ``varjepa.explore`` are their functions'."""

from __future__ import annotations

import inspect
import pydoc
from typing import Any

import pytest

import varjepa
from varjepa.audit.run import audit
from varjepa.explore.run import explore


@pytest.mark.parametrize("function", [audit, explore])
def test_signature_and_help_are_the_functions(function: Any) -> None:
    package = getattr(varjepa, function.__name__)
    names = list(inspect.signature(function).parameters)
    assert list(inspect.signature(package).parameters) == names
    told = pydoc.plain(pydoc.render_doc(package))
    first, *_, last = (inspect.getdoc(function) or "").splitlines()
    assert first in told
    assert last in told
    assert f"{package.__name__}({', '.join(names[:1])}" in told
