"""Gymnasium environments behind the host adapter."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from purerl import envs, tree
from purerl.errors import ConfigError, EnvError

MODES = list(AutoresetMode)


class Counter(gym.Env[Any, Any]):
    """Shows its step, ends every third, and keeps one array for all observations."""

    observation_space = spaces.Box(0.0, 100.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, fault: str = "") -> None:
        self.fault, self.total = fault, 0
        self.shown = np.zeros(1, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.shown[0] = 0.0
        return self.shown, {}

    def step(self, action: Any) -> Any:
        self.total += 1
        self.shown[0] += 1.0
        count = int(self.shown[0])
        reward = float(count)
        if self.total == 37:
            if self.fault == "raise":
                raise RuntimeError("the motor is hot")
            if self.fault == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.fault == "hang":
                time.sleep(30)
            if self.fault == "nan reward":
                reward = float("nan")
            if self.fault == "nan observation":
                return np.full(1, np.nan, np.float32), reward, False, False, {}
            if self.fault == "outside":
                return np.full(1, 101.0, np.float32), reward, False, False, {}
        return self.shown, reward, False, count == 3, {}


def host_of(mode: AutoresetMode, *faults: str) -> envs.HostEnvironment:
    makers = [
        lambda index=index, fault=fault: envs.Guarded(Counter(fault), index)
        for index, fault in enumerate(faults)
    ]
    return envs.gymnasium(SyncVectorEnv(makers, autoreset_mode=mode))


def transitions(mode: AutoresetMode, steps: int) -> list[tuple[float, ...]]:
    host = host_of(mode, "")
    observation = host.reset([5])
    rows = []
    for _ in range(steps):
        step = host.step(torch.zeros(1, dtype=torch.int64))
        if bool(step.mask):
            flags = (float(step.terminated), float(step.truncated))
            rows.append(
                (float(observation), float(step.reward), *flags, float(step.next_observation))
            )
        observation = step.observation
    return rows


def test_8_next_step_rows_are_6_transitions_and_every_mode_gives_the_same() -> None:
    expected = [(0.0, 1.0, 0.0, 0.0, 1.0), (1.0, 2.0, 0.0, 0.0, 2.0), (2.0, 3.0, 0.0, 1.0, 3.0)]
    assert transitions(AutoresetMode.NEXT_STEP, 8) == expected * 2
    assert transitions(AutoresetMode.SAME_STEP, 6) == expected * 2
    assert transitions(AutoresetMode.DISABLED, 6) == expected * 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raise", "environment 1.*the motor is hot"),
        ("nan reward", "reward is nan, environment 1"),
        ("nan observation", "observation is nan, environment 1"),
        ("outside", r"observation \[101\.\] is outside Box.*environment 1"),
    ],
)
def test_a_fault_is_an_error_that_names_the_environment(
    mode: AutoresetMode, fault: str, message: str
) -> None:
    host = host_of(mode, "", fault)
    host.reset([1, 2])

    def run() -> None:
        for _ in range(60):
            host.step(torch.zeros(2, dtype=torch.int64))

    with pytest.raises(EnvError, match=message):
        run()


def test_observations_outside_their_bounds_may_be_counted_instead() -> None:
    vector = SyncVectorEnv([lambda: Counter("outside")], autoreset_mode=AutoresetMode.SAME_STEP)
    host = envs.gymnasium(vector, bounds="count")
    host.reset([1])
    steps = [host.step(torch.zeros(1, dtype=torch.int64)) for _ in range(40)]
    assert host.outside_observations == 1
    assert 101.0 in [float(step.observation) for step in steps]


class Odd(gym.Env[Any, Any]):
    """Has spaces that begin at 5, and shows what is outside of its own when told to."""

    observation_space = spaces.Discrete(3, start=5)
    action_space = spaces.MultiDiscrete([3, 3], start=[5, 5])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seen: list[Any] = []
        return np.int64(5), {}

    def step(self, action: Any) -> Any:
        self.seen.append(action)
        return np.int64(5 if self.action_space.contains(action) else 9), 0.0, False, False, {}


def test_spaces_that_begin_elsewhere_are_met_and_held_to() -> None:
    host = envs.gymnasium(SyncVectorEnv([Odd], autoreset_mode=AutoresetMode.SAME_STEP))
    assert host.reset([0]).tolist() == [5]
    assert host.step(torch.zeros(1, 2, dtype=torch.int64)).observation.tolist() == [5]
    with pytest.raises(EnvError, match=r"observation 9 is outside Discrete\(3, start=5\)"):
        host.step(torch.full((1, 2), 7))
    for option in ({"action_mode": "clp"}, {"vectorization": "asink"}, {"bounds": "eror"}):
        with pytest.raises(ConfigError, match="did you mean"):
            envs.gymnasium("CartPole-v1", **option)  # type: ignore[arg-type]  # the point


def test_a_stored_observation_keeps_its_value_when_the_environment_moves_on() -> None:
    host = host_of(AutoresetMode.SAME_STEP, "")
    first = host.reset([0])
    host.step(torch.zeros(1, dtype=torch.int64))
    assert float(first) == 0.0


def test_actions_are_clipped_and_counted_or_scaled() -> None:
    host = envs.gymnasium("Pendulum-v1", num_envs=2)
    host.reset([0, 1])
    host.step(torch.tensor([[9.0], [0.5]]))
    assert host.clipped_actions == 1
    with pytest.raises(EnvError, match=r"action has shape \[2\], expected \[2, 1\]"):
        host.step(torch.zeros(2))


def test_mistakes_are_answered() -> None:
    with pytest.raises(ConfigError, match="did you mean CartPole-v1"):
        envs.gymnasium("CartPoel-v1")
    host = envs.gymnasium("CartPole-v1", num_envs=2)
    with pytest.raises(EnvError, match="before reset"):
        host.step(torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ConfigError, match="1 distinct seeds for 2 environments"):
        host.reset([3, 3])


@pytest.mark.parametrize("mode", MODES)
def test_the_host_cartpole_agrees_with_the_pure_one(mode: AutoresetMode) -> None:
    host = envs.gymnasium("CartPole-v1", num_envs=3, autoreset_mode=mode)
    observation, env = host.reset([1, 2, 3]), envs.make("CartPole-v1", dtype=torch.float64)
    for number in range(60):
        action = torch.tensor([number % 2, 1, 0])
        step = host.step(action)
        state = tree.from_dict(
            {"physics": observation.double(), "time": torch.zeros(3, dtype=torch.int64)}, [3]
        )
        _, pure = env.step(state, action, torch.zeros(2, dtype=torch.int64))
        real = step.mask
        torch.testing.assert_close(
            step.next_observation[real], pure.next_observation[real], rtol=0, atol=1e-5
        )
        assert torch.equal(step.terminated[real], pure.terminated[real])
        observation = step.observation


@pytest.mark.filterwarnings("ignore:.*from Worker-1:UserWarning")  # gymnasium tells it as well
@pytest.mark.filterwarnings("ignore:.*Raising the last exception:UserWarning")
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raise", "step 36.*the motor is hot"),
        ("die", "environment 1 .its process ended with -9"),
        ("hang", "an environment took more than 0.5 s"),
    ],
)
def test_a_process_that_raises_dies_or_hangs_is_an_error_and_no_process_stays(
    fault: str, message: str
) -> None:
    makers = [lambda f=f: Counter(f) for f in ("", fault)]
    vector = AsyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
    host = envs.HostEnvironment(vector, "counters", timeout=0.5)
    host.reset([1, 2])

    def run() -> None:
        for _ in range(60):
            host.step(torch.zeros(2, dtype=torch.int64))

    with pytest.raises(EnvError, match=message):
        run()
    assert not any(process.is_alive() for process in vector.processes)


def test_an_action_that_is_nan_never_reaches_an_environment() -> None:
    host = envs.gymnasium("Pendulum-v1", num_envs=2)
    host.reset([0, 1])
    with pytest.raises(EnvError, match="action is nan, environment 1"):
        host.step(torch.tensor([[0.0], [torch.nan]]))
