"""The one interface of all networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tensordict import TensorDict

from ..types import Key


class Network(NamedTuple):
    """A network as two pure functions; both work under ``torch.vmap`` and ``torch.compile``."""

    init: Callable[[Key], TensorDict]
    """``key -> params``."""
    apply: Callable[..., Any]
    """``(params, observation) -> output``; some networks take or return more, see each."""
