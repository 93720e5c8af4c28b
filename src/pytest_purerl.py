"""The pytest fixture ``conformance``: the checks of purerl, failing a test by their report.

A module of its own, outside the package, so that a test run which does not use the fixture does
not import torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(scope="session")
def conformance() -> Callable[..., None]:
    """Return ``conformance(kind, function, …)``, which fails unless the function conforms.

    Arguments are those of `purerl.conformance.check_function`.
    """
    from purerl.conformance import check_function

    def require(kind: str, function: Callable[..., Any], /, **options: Any) -> None:
        report = check_function(kind, function, **options)
        if not report.passed:
            pytest.fail(str(report), pytrace=False)

    return require
