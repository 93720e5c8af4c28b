"""Estimators beside TorchRL's, at the shapes of TorchRL's own benchmark.

``pytest benchmarks/bench_returns.py --benchmark-only`` gives one row for each function and shape.
``python -m benchmarks.bench_returns [threads]`` times all of them in turns, so that a busy machine
slows all alike, and prints medians and how many times faster than TorchRL's best each is.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from purerl import returns

GAMMA, LMBDA = 0.99, 0.95
# batch, steps: pytorch/rl benchmarks/test_objectives_benchmarks.py, then a small PPO rollout
SHAPES = [(300, 500), (32, 512), (1, 512), (4, 128)]
Run = Callable[[], Any]


def experience(batch: int, num_steps: int) -> dict[str, Tensor]:
    """Return TorchRL's benchmark data ``[batch, steps, 1]``: one step in ten is an end."""
    g = torch.Generator().manual_seed(0)
    shape = (batch, num_steps, 1)
    data = {k: torch.randn(shape, generator=g) for k in ("value", "next_value", "reward")}
    done = torch.rand(shape, generator=g) < 0.1
    return data | {"terminated": done, "truncated": torch.zeros_like(done)}


def contenders(batch: int, num_steps: int) -> dict[str, Run]:
    """Return GAE by purerl, time first and in TorchRL's layout, and by TorchRL."""
    from torchrl.objectives.value import functional as torchrl

    theirs = experience(batch, num_steps)
    ours = {k: v.squeeze(-1).T.contiguous() for k, v in theirs.items()}
    args: dict[str, Any] = {
        "gamma": GAMMA,
        "lmbda": LMBDA,
        "state_value": theirs["value"],
        "next_state_value": theirs["next_value"],
        "reward": theirs["reward"],
        "done": theirs["terminated"],
        "terminated": theirs["terminated"],
    }
    return {
        "purerl": lambda: returns.gae(**ours, gamma=GAMMA, lmbda=LMBDA),
        "purerl dim=-2": lambda: returns.gae(**theirs, gamma=GAMMA, lmbda=LMBDA, dim=-2),
        "torchrl loop": lambda: torchrl.generalized_advantage_estimate(**args),
        "torchrl vec": lambda: torchrl.vec_generalized_advantage_estimate(**args),
    }


NAMES = ["purerl", "purerl dim=-2", "torchrl loop", "torchrl vec"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape[0]}x{shape[1]}")
def test_gae(benchmark: Any, shape: tuple[int, int], name: str) -> None:
    benchmark.group = f"gae {shape[0]}x{shape[1]}"
    benchmark(contenders(*shape)[name])


@pytest.mark.parametrize("name", ["td1", "td_lambda", "vtrace"])
@pytest.mark.parametrize("library", ["purerl", "torchrl"])
def test_other_estimators(benchmark: Any, library: str, name: str) -> None:
    from torchrl.objectives.value import functional as torchrl

    benchmark.group = f"{name} 300x500"
    x = experience(300, 500)
    log_prob = {"log_prob": x["value"] / 10, "behavior_log_prob": x["reward"] / 10}
    first = {k: v.squeeze(-1).T.contiguous() for k, v in (x | log_prob).items()}
    critic = {k: first[k] for k in ("reward", "next_value", "terminated", "truncated")}
    theirs: dict[str, Any] = {"next_state_value": x["next_value"], "reward": x["reward"]}
    theirs |= {"done": x["terminated"], "terminated": x["terminated"], "gamma": GAMMA}
    logs = {"log_pi": log_prob["log_prob"], "log_mu": log_prob["behavior_log_prob"]}
    runs: dict[tuple[str, str], Run] = {
        ("purerl", "td1"): lambda: returns.td1(**critic, gamma=GAMMA),
        ("purerl", "td_lambda"): lambda: returns.td_lambda(**critic, gamma=GAMMA, lmbda=LMBDA),
        ("purerl", "vtrace"): lambda: returns.vtrace(**first, gamma=GAMMA),
        ("torchrl", "td1"): lambda: torchrl.vec_td1_return_estimate(**theirs),
        ("torchrl", "td_lambda"): lambda: torchrl.vec_td_lambda_return_estimate(
            **theirs, lmbda=LMBDA
        ),
        ("torchrl", "vtrace"): lambda: torchrl.vtrace_advantage_estimate(
            **theirs, **logs, state_value=x["value"]
        ),
    }
    benchmark(runs[library, name])


def in_turns(runs: dict[str, Run], rounds: int = 30) -> dict[str, float]:
    """Return the median microseconds of each function, timed in alternation."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            run()
            for _ in range(2 if name.startswith("torchrl") else 10):
                begin = time.perf_counter()
                run()
                taken[name].append(1e6 * (time.perf_counter() - begin))
    return {name: statistics.median(times) for name, times in taken.items()}


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else torch.get_num_threads())
    print(f"GAE, median microseconds, {torch.get_num_threads()} thread(s)")
    for shape in SHAPES:
        medians = in_turns(contenders(*shape))
        best = min(medians["torchrl loop"], medians["torchrl vec"])
        row = "  ".join(f"{name} {medians[name]:.0f}" for name in NAMES)
        factors = [best / medians[name] for name in NAMES[:2]]
        print(f"{shape[0]} x {shape[1]}: {row}  faster: {factors[0]:.1f}, {factors[1]:.1f}")


if __name__ == "__main__":
    main()
