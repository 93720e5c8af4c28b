"""Gymnasium environments as host environments: real transitions in every autoreset mode.

A host environment lives outside the state. Whatever its autoreset mode, `HostEnvironment.step`
returns the same transitions: ``next_observation`` is the true successor, ``observation`` what the
policy sees next, and ``mask`` is False for the rows that only reset (NEXT_STEP).
"""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv
from torch import Tensor

from .. import check, random, tree
from ..errors import ConfigError, EnvError, did_you_mean
from ..types import Key, Tree

ActionMode: TypeAlias = Literal["clip", "tanh_scale", "none"]
BoundsMode: TypeAlias = Literal["error", "count"]


class HostStep(NamedTuple):
    """One vector step, as tensors ``[num_envs, …]``; Dict observations are nested dicts."""

    observation: Tree
    next_observation: Tree
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    mask: Tensor


class HostEnvironment:
    """A vector environment that checks what it gets and gives.

    Args:
        vector_env: in one of gymnasium's three autoreset modes.
        name: for messages and pictures.
        action_mode: what happens to a Box action on its way in: ``"clip"`` into the box,
            ``"tanh_scale"`` from [−1, 1] onto the box, ``"none"``.
        timeout: seconds that environments in processes of their own may take for one step.
        bounds: an observation outside the bounds that its space declares is an ``"error"``, or
            passes as it is and is counted in ``outside_observations`` (LunarLander leaves its own).

    Raises:
        EnvError: the vector environment does not say how it resets.
    """

    def __init__(
        self,
        vector_env: VectorEnv[Any, Any, Any],
        name: str,
        action_mode: ActionMode = "clip",
        timeout: float = 60.0,
        bounds: BoundsMode = "error",
    ) -> None:
        mode = vector_env.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            known = ", ".join(str(option) for option in AutoresetMode)
            raise EnvError(f"{name}: metadata['autoreset_mode'] is {mode!r}, expected {known}")
        self.name = name
        self.num_envs: int = vector_env.num_envs
        self.observation_space: spaces.Space[Any] = vector_env.single_observation_space
        self.action_space: spaces.Space[Any] = vector_env.single_action_space
        self.clipped_actions = self.outside_observations = 0
        check.option("action_mode", action_mode, ("clip", "tanh_scale", "none"))
        self._strict = check.option("bounds", bounds, ("error", "count")) == "error"
        self._env, self._mode, self._action_mode = vector_env, mode, action_mode
        self._timeout = timeout
        self._observation: Tree | None = None
        self._done = np.zeros(vector_env.num_envs, bool)
        self._number = 0

    @property
    def observation(self) -> Tree:
        """What the policies see next, ``[num_envs, …]``."""
        if self._observation is None:
            raise EnvError(f"{self.name} was asked for an observation before reset")
        return self._observation

    @property
    def acts(self) -> Tensor:
        """Whether the next step of each environment takes an action, and does not only reset."""
        resets = self._done if self._mode is AutoresetMode.NEXT_STEP else np.zeros_like(self._done)
        return torch.from_numpy(~resets)

    def reset(self, seeds: Sequence[int]) -> Tree:
        """Start every environment from its own seed and return the observations."""
        if len(set(seeds)) != self.num_envs:
            raise ConfigError(
                f"{len(set(seeds))} distinct seeds for {self.num_envs} environments: give one each"
            )
        reset: Any = self._env.reset  # its annotation knows no list of seeds
        found, _ = self._called(lambda: reset(seed=list(seeds)), "reset")
        self._done[:] = False
        self._number = 0
        self._observation = self._checked(found)
        return self._observation

    def step(self, action: Tensor) -> HostStep:
        """Take one step in every environment.

        Args:
            action: ``[num_envs, …]``.

        Raises:
            EnvError: an environment failed, or broke its contract.
        """
        _ = self.observation  # stepping before reset is an error
        sent = self._sent(action)
        found, reward, terminated, truncated, info = self._called(
            lambda: self._stepped(sent), "step"
        )
        dummy = self._done if self._mode is AutoresetMode.NEXT_STEP else np.zeros_like(self._done)
        done = np.asarray(terminated, bool) | np.asarray(truncated, bool)
        self._require_finite("reward", np.asarray(reward, np.float64)[:, None])
        observation = following = self._checked(found)
        if done.any() and self._mode is AutoresetMode.SAME_STEP:
            following = self._with_final(observation, done, info)
        elif done.any() and self._mode is AutoresetMode.DISABLED:
            fresh, _ = self._called(lambda: self._env.reset(options={"reset_mask": done}), "reset")
            observation = self._checked(fresh)
        self._observation, self._done, self._number = observation, done, self._number + 1
        return HostStep(
            observation=observation,
            next_observation=following,
            reward=torch.tensor(np.asarray(reward, np.float32)),
            terminated=torch.tensor(np.asarray(terminated, bool)),
            truncated=torch.tensor(np.asarray(truncated, bool)),
            mask=torch.tensor(~dummy),
        )

    def close(self) -> None:
        """Close all environments."""
        self._env.close()

    def _stepped(self, sent: np.ndarray[Any, Any]) -> Any:
        if not isinstance(self._env, AsyncVectorEnv):
            return self._env.step(sent)
        self._env.step_async(sent)  # its own step would wait for ever
        return self._env.step_wait(timeout=self._timeout)

    def _called(self, function: Any, what: str) -> Any:
        try:
            return function()
        except Exception as error:
            which = self._culprit(error)
            self._abandon()
            raise EnvError(
                f"{self.name} failed in {what}{which}, step {self._number}: {error!r}"
            ) from error

    def _abandon(self) -> None:
        """Leave no process behind, in whatever state the failure left them."""
        if not isinstance(self._env, AsyncVectorEnv):
            return
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")  # of a close that interrupts a step, which it is for
            self._env.close(terminate=True)
        for process in self._env.processes:
            process.kill()
            process.join()

    def _culprit(self, error: Exception) -> str:
        """Say which environment an error came from, as far as can be known."""
        index = getattr(error, "purerl_environment", None)
        if index is not None:
            return f", environment {index}"
        if isinstance(error, multiprocessing.TimeoutError):
            return f", an environment took more than {self._timeout:g} s"
        processes = self._env.processes if isinstance(self._env, AsyncVectorEnv) else []
        for number, process in enumerate(processes):
            process.join(timeout=0.5 if isinstance(error, (EOFError, OSError)) else 0.0)
            if process.exitcode is not None:
                return f", environment {number} (its process ended with {process.exitcode})"
        return ""

    def _checked(self, found: Any) -> Tree:
        """Return observations as fresh tensors, each checked against its space."""
        return _observations(self, self.observation_space, found)

    def _require_finite(self, what: str, values: np.ndarray[Any, Any]) -> None:
        bad = ~np.isfinite(values).reshape(len(values), -1).all(1)
        if bad.any():
            index = int(bad.argmax())
            value = values[index][~np.isfinite(values[index])].flat[0]
            raise EnvError(
                f"{self.name}: {what} is {value}, environment {index}, step {self._number}"
            )

    def _with_final(self, observation: Tree, done: np.ndarray[Any, Any], info: Any) -> Tree:
        final = info["final_obs"]
        if isinstance(final, np.ndarray) and final.dtype == object:
            space = self.observation_space
            rows = [row for row, ended in zip(final, done, strict=True) if ended]
            empty: Any = gym.vector.utils.create_empty_array(space, len(rows))
            final = gym.vector.utils.concatenate(space, rows, empty)
            index = torch.tensor(np.flatnonzero(done))
            ended = self._checked(final)
            return tree.map(lambda a, b: a.index_copy(0, index, b), observation, ended)
        return tree.where(torch.tensor(done), self._checked(final), observation)

    def _sent(self, action: Tensor) -> np.ndarray[Any, Any]:
        expected = (self.num_envs, *(self.action_space.shape or ()))
        if tuple(action.shape) != expected:
            raise EnvError(
                f"{self.name}: action has shape {list(action.shape)}, expected {list(expected)}"
            )
        array = action.detach().cpu().numpy()
        if array.dtype.kind == "f":
            self._require_finite("action", array)
        space = self.action_space
        if isinstance(space, spaces.Box):
            if self._action_mode == "tanh_scale":
                array = space.low + 0.5 * (array + 1.0) * (space.high - space.low)
            if self._action_mode != "none":
                bounded = np.clip(array, space.low, space.high)
                outside = (bounded != array).reshape(self.num_envs, -1).any(1)
                self.clipped_actions += int(outside.sum())
                array = bounded
        elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            array = array + space.start
        return array.astype(space.dtype)


def _observations(host: HostEnvironment, space: spaces.Space[Any], found: Any) -> Tree:
    if isinstance(space, spaces.Dict):
        if set(found) != set(space.keys()):
            raise EnvError(
                f"{host.name}: observation has keys {sorted(found)}, expected {sorted(space)}"
            )
        return {key: _observations(host, inner, found[key]) for key, inner in space.items()}
    array = np.array(found)  # a copy: the environment may write into its own
    if array.dtype != space.dtype or array.shape[1:] != space.shape:
        raise EnvError(
            f"{host.name}: observation is {array.dtype} {list(array.shape[1:])}, "
            f"expected {space.dtype} {list(space.shape or ())}"
        )
    if array.dtype.kind == "f":
        host._require_finite("observation", array.reshape(len(array), -1))
    low, high = _bounds(space)
    if low is not None:
        outside = ((array < low) | (array > high)).reshape(len(array), -1).any(1)
        host.outside_observations += int(outside.sum())
        if outside.any() and host._strict:
            index = int(outside.argmax())
            raise EnvError(
                f"{host.name}: observation {array[index]} is outside {space}, "
                f"environment {index}, step {host._number}; bounds='count' lets such pass"
            )
    return torch.from_numpy(array)


def _bounds(space: spaces.Space[Any]) -> tuple[Any, Any]:
    """Return the least and the greatest that a space has, or None twice where it has none."""
    match space:
        case spaces.Box():
            return space.low, space.high
        case spaces.Discrete():
            return space.start, space.start + space.n - 1
        case spaces.MultiDiscrete():
            return space.start, space.start + space.nvec - 1
        case spaces.MultiBinary():
            return 0, 1
        case _:
            return None, None


class Guarded(gym.Wrapper[Any, Any, Any, Any]):
    """Marks each exception with the index of its environment, and copies each observation.

    An environment that shows one array again and again would overwrite a final observation by
    resetting; wrap the environments of your own vector environment with this as well.
    """

    def __init__(self, env: gym.Env[Any, Any], index: int) -> None:
        super().__init__(env)
        self._index = index

    def step(self, action: Any) -> Any:
        """Step the environment."""
        observation, *rest = self._marked(lambda: self.env.step(action))
        return copy.deepcopy(observation), *rest

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Reset the environment."""
        observation, info = self._marked(lambda: self.env.reset(seed=seed, options=options))
        return copy.deepcopy(observation), info

    def _marked(self, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except Exception as error:
            error.purerl_environment = self._index  # type: ignore[attr-defined]  # read in _called
            raise


def gymnasium(
    env: str | VectorEnv[Any, Any, Any],
    num_envs: int = 1,
    *,
    autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
    vectorization: Literal["sync", "async"] = "sync",
    action_mode: ActionMode = "clip",
    timeout: float = 60.0,
    bounds: BoundsMode = "error",
) -> HostEnvironment:
    """Return a gymnasium environment, by its id or as a vector environment, as a host environment.

    Args:
        env: a registered id, or a `VectorEnv`, which keeps its own autoreset mode.
        num_envs: environments to make of an id.
        autoreset_mode: for an id; SAME_STEP wastes no row.
        vectorization: ``"sync"`` in this process, ``"async"`` in a process each.
        action_mode: see `HostEnvironment`.
        timeout: see `HostEnvironment`.
        bounds: see `HostEnvironment`.

    Raises:
        ConfigError: the id is not registered.

    >>> host = gymnasium("CartPole-v1", num_envs=2)
    >>> host.reset([0, 1]).shape
    torch.Size([2, 4])
    """
    check.option("vectorization", vectorization, ("sync", "async"))
    if isinstance(env, VectorEnv):
        return HostEnvironment(env, type(env).__name__, action_mode, timeout, bounds)
    env_id = env
    if ":" not in env_id and env_id not in gym.registry:
        raise ConfigError(f"unknown environment {env_id}{did_you_mean(env_id, gym.registry)}")

    def maker(index: int) -> Any:
        return lambda: Guarded(gym.make(env_id), index)

    makers = [maker(index) for index in range(num_envs)]
    if vectorization == "async":
        vector: Any = AsyncVectorEnv(makers, autoreset_mode=autoreset_mode)
    else:
        vector = gym.vector.SyncVectorEnv(makers, autoreset_mode=autoreset_mode)
    return HostEnvironment(vector, env_id, action_mode, timeout, bounds)


def environment_seeds(key: Key, num_envs: int) -> list[int]:
    """Return distinct integer seeds, one for each environment.

    Threefry is a bijection for each key, so distinct counters never give one 64-bit seed twice.

    Args:
        key: int64 ``[2]``.
        num_envs: how many.

    >>> len(set(environment_seeds(random.key(0), 1000)))
    1000
    """
    words = random.split(key, num_envs).tolist()
    return [(high << 32) | low for high, low in words]
