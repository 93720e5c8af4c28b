"""Running statistics and scaled rewards against gymnasium's and Stable-Baselines3's, run live."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from purerl import normalize, random

F64 = torch.float64


def draw(seed: int, *shape: int) -> Tensor:
    return random.normal(random.key(seed), shape, dtype=F64)


def close(actual: Tensor, expected: Any, rtol: float = 1e-12) -> None:
    wanted = torch.as_tensor(np.asarray(expected), dtype=F64)
    torch.testing.assert_close(actual, wanted, rtol=rtol, atol=rtol)


@pytest.mark.parametrize(
    "module", ["gymnasium.wrappers.utils", "stable_baselines3.common.running_mean_std"]
)
def test_statistics_equal_running_mean_std(module: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # optional dependencies warn on import
        peer = importlib.import_module(module).RunningMeanStd(epsilon=1e-4, shape=(3,))
    stats = normalize.init((3,), prior_count=1e-4)
    for k in range(20):
        batch = 2.0 + 3.0 * draw(k, 1 + k % 4, 3)
        peer.update(batch.numpy())
        stats = normalize.update(stats, batch)
        close(stats["mean"], peer.mean)
        close(normalize.variance(stats), peer.var)
        close(stats["count"], peer.count)


def test_scaled_rewards_equal_those_of_vec_normalize() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vec_env = importlib.import_module("stable_baselines3.common.vec_env")
        spaces = importlib.import_module("gymnasium.spaces")
    reward, done = 3.0 * draw(1, 50, 4), draw(2, 50, 4) > 1.0

    class Replay(vec_env.VecEnv):
        """Gives the rewards and flags above."""

        def __init__(self) -> None:
            self.time = 0
            super().__init__(4, spaces.Box(-1.0, 1.0, (1,)), spaces.Discrete(2))

        def reset(self) -> Any:
            return np.zeros((4, 1), np.float32)

        def step_async(self, actions: Any) -> None:
            pass

        def step_wait(self) -> Any:
            self.time += 1
            r, d = reward[self.time - 1].numpy(), done[self.time - 1].numpy()
            infos = [{"terminal_observation": np.zeros(1, np.float32)} for _ in range(4)]
            return np.zeros((4, 1), np.float32), r, d, infos

        def close(self) -> None: ...
        def get_attr(self, name: str, indices: Any = None) -> Any:
            return [None] * 4

        def set_attr(self, name: str, value: Any, indices: Any = None) -> None: ...
        def env_method(self, name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any: ...
        def env_is_wrapped(self, wrapper: Any, indices: Any = None) -> Any: ...

    peer = vec_env.VecNormalize(Replay(), norm_obs=False, gamma=0.9, clip_reward=2.0)
    peer.reset()
    expected = np.stack([peer.step(np.zeros(4))[1] for _ in range(50)])
    stats = normalize.init_return(4, prior_count=1e-4)
    scaled, stats = normalize.scale_rollout(stats, reward, done, 0.9, clip=2.0)
    close(scaled, expected, rtol=1e-7)  # it returns float32
    close(normalize.variance(stats), peer.ret_rms.var)
