"""Tiny environments with known values: what an algorithm that is right must learn on them.

Each tells one thing apart. An algorithm that misses the value of one of them has a mistake of the
kind that the environment is named for. The idea is that of the probe environments in rejax's
tests and in Andy Jones' "Debugging RL".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor

from .. import random
from ..types import Key
from .core import Environment, Step, make_step

_Outcome = tuple[Tensor, Tensor]  # reward and terminated
_Rule = Callable[[Tensor, Tensor, Tensor], _Outcome]  # (shown, action, time) -> outcome


def _probe(
    name: str,
    rule: _Rule,
    *,
    first: Callable[[Key, torch.dtype], Tensor] | None = None,
    following: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None,
    action_space: spaces.Space[Any] | None = None,
    max_episode_steps: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Environment:
    """Return an environment whose state is one shown number and the time."""

    def reset(key: Key) -> tuple[TensorDict, Tensor]:
        if first is None:
            shown = torch.zeros((), dtype=dtype, device=key.device)
        else:
            shown = first(key, dtype)
        time = torch.zeros((), dtype=torch.int64, device=key.device)
        return TensorDict({"shown": shown, "time": time}), shown.unsqueeze(-1).to(torch.float32)

    def step(env_state: TensorDict, action: Tensor, key: Key) -> tuple[TensorDict, Step]:
        del key  # chance enters by resets only
        shown, time = env_state["shown"], env_state["time"]
        reward, terminated = rule(shown, action, time)
        if following is not None:
            shown = following(shown, action, time)
        observation = shown.unsqueeze(-1).to(torch.float32)
        return make_step({"shown": shown}, observation, reward, terminated, time, max_episode_steps)

    return Environment(
        name=f"probe/{name}",
        reset=reset,
        step=step,
        observation_space=spaces.Box(-torch.inf, torch.inf, (1,)),
        action_space=action_space or spaces.Discrete(2),
        max_episode_steps=max_episode_steps,
    )


def _sign(key: Key, dtype: torch.dtype) -> Tensor:
    return random.bernoulli(key).to(dtype) * 2.0 - 1.0


def _always(shown: Tensor) -> Tensor:
    return torch.ones_like(shown, dtype=torch.bool)


def _advance(shown: Tensor, action: Tensor, time: Tensor) -> Tensor:
    return shown + 1.0


def one_step(
    *, max_episode_steps: int | None = None, dtype: torch.dtype = torch.float32
) -> Environment:
    """Return one step of reward 1: V = 1. Tests that a value is fitted at all."""
    return _probe(
        "one_step",
        lambda shown, action, time: (torch.ones_like(shown), _always(shown)),
        max_episode_steps=max_episode_steps,
        dtype=dtype,
    )


def observation_reward(
    *, max_episode_steps: int | None = None, dtype: torch.dtype = torch.float32
) -> Environment:
    """Return one step whose reward is the observation ±1: V(s) = s."""
    return _probe(
        "observation_reward",
        lambda shown, action, time: (shown, _always(shown)),
        first=_sign,
        max_episode_steps=max_episode_steps,
        dtype=dtype,
    )


def two_step(
    *, max_episode_steps: int | None = None, dtype: torch.dtype = torch.float32
) -> Environment:
    """Return two steps, reward 1 on the second: V(0) = γ, V(1) = 1. Tests discounting."""
    return _probe(
        "two_step",
        lambda shown, action, time: (shown, shown >= 1.0),
        following=_advance,
        max_episode_steps=max_episode_steps,
        dtype=dtype,
    )


def action_reward(
    *, max_episode_steps: int | None = None, dtype: torch.dtype = torch.float32
) -> Environment:
    """Return one step that pays 1 for action 1: π(1) → 1. Tests the sign of the gradient."""
    return _probe(
        "action_reward",
        lambda shown, action, time: (action.to(shown.dtype), _always(shown)),
        max_episode_steps=max_episode_steps,
        dtype=dtype,
    )


def observation_action_reward(
    *, max_episode_steps: int | None = None, dtype: torch.dtype = torch.float32
) -> Environment:
    """Return one step that pays 1 if action 1 meets +1 or action 0 meets −1, else −1: V → 1."""
    return _probe(
        "observation_action_reward",
        lambda shown, action, time: (shown * (action.to(shown.dtype) * 2.0 - 1.0), _always(shown)),
        first=_sign,
        max_episode_steps=max_episode_steps,
        dtype=dtype,
    )


def truncation_loop(
    *, max_episode_steps: int | None = 3, dtype: torch.dtype = torch.float32
) -> Environment:
    """Return reward 1 for ever, cut by a time limit: V = 1/(1−γ) whatever the limit."""
    return _probe(
        "truncation_loop",
        lambda shown, action, time: (torch.ones_like(shown), ~_always(shown)),
        max_episode_steps=max_episode_steps,
        dtype=dtype,
    )


def termination_loop(
    *,
    num_steps: int = 3,
    max_episode_steps: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Environment:
    """Return reward 1 for num_steps = n steps, then the end: V(t) = (1 − γ^{n−t})/(1−γ)."""
    return _probe(
        "termination_loop",
        lambda shown, action, time: (torch.ones_like(shown), time + 1 >= num_steps),
        following=_advance,
        max_episode_steps=max_episode_steps,
        dtype=dtype,
    )


def continuous_target(
    *, max_episode_steps: int | None = None, dtype: torch.dtype = torch.float32
) -> Environment:
    """Return one step that pays −(a − 0.3)² for an action in [−1, 1]: a → 0.3."""

    def rule(shown: Tensor, action: Tensor, time: Tensor) -> _Outcome:
        return -(action[..., 0].to(shown.dtype) - 0.3).square(), _always(shown)

    return _probe(
        "continuous_target",
        rule,
        action_space=spaces.Box(-1.0, 1.0, (1,)),
        max_episode_steps=max_episode_steps,
        dtype=dtype,
    )


def counter(
    *, max_episode_steps: int | None = 3, dtype: torch.dtype = torch.float32
) -> Environment:
    """Return steps that show and pay their own number: for the bookkeeping of rows."""
    return _probe(
        "counter",
        lambda shown, action, time: (shown + 1.0, ~_always(shown)),
        following=_advance,
        max_episode_steps=max_episode_steps,
        dtype=dtype,
    )


def chain(
    *,
    length: int = 4,
    max_episode_steps: int | None = 20,
    dtype: torch.dtype = torch.float32,
) -> Environment:
    """Return a chain of states 0 … length−1: action 1 goes right, 0 left; the end pays 1.

    V*(s) = γ^{length − 1 − s}:   the reward comes on the step out of the last state
    """

    def rule(shown: Tensor, action: Tensor, time: Tensor) -> _Outcome:
        out = (shown >= length - 1) & (action == 1)
        return out.to(shown.dtype), out

    return _probe(
        "chain",
        rule,
        following=lambda shown, action, time: (shown + action.to(shown.dtype) * 2.0 - 1.0).clamp(
            0.0, length - 1
        ),
        max_episode_steps=max_episode_steps,
        dtype=dtype,
    )
