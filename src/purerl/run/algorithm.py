"""What the run needs of an algorithm."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from ..types import Key, Tree


class Algorithm(Protocol):
    """Functions over one state; a module such as ``purerl.ppo`` is one.

    A state is a TensorClass whose ``episode`` entry holds the statistics of `rollout.episode_init`.
    """

    __name__: str

    def init(self, config: Any, env: Any, key: Key, /) -> Any:
        """Return the state of a fresh run."""

    def act(
        self, config: Any, state: Any, observation: Tree, key: Key, deterministic: bool, /
    ) -> tuple[Tensor, Any]:
        """Return actions for a batch of observations; the state stays as it is."""

    def train_step(self, config: Any, env: Any, state: Any, /) -> tuple[Any, Any]:
        """Return the next state of one member, and its metrics."""

    def host_train_step(self, config: Any, host: Any, states: Any, /) -> tuple[Any, Any]:
        """Return the next states of all members in one host environment, and their metrics."""

    def steps_per_train_step(self, config: Any, /) -> int:
        """Return how many environment steps a train step takes for each member."""


def short_name(algorithm: Algorithm) -> str:
    """Return the last part of an algorithm's module name: ``"ppo"`` of ``"purerl.algos.ppo"``."""
    return algorithm.__name__.rpartition(".")[-1]
