"""Mistakes of value estimators, as backward loops that each do one thing wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ... import returns
from ...types import Scalar
from .mistake import Mistake


class Steps(NamedTuple):
    """The inputs of a backward loop, time first; γ and λ have the reward's shape."""

    reward: Tensor
    value: Tensor
    next_value: Tensor
    terminated: Tensor
    truncated: Tensor
    gamma: Tensor
    lmbda: Tensor

    @property
    def done(self) -> Tensor:
        """Either flag."""
        return self.terminated | self.truncated


def masked(value: Tensor, mask: Tensor) -> Tensor:
    """Return ``value`` with 0 where the mask is True."""
    return torch.where(mask, torch.zeros_like(value), value)


def shifted(rows: Tensor, last: Tensor) -> Tensor:
    """Return row t + 1 at row t."""
    return torch.cat([rows[1:], last])


def backward(delta: Tensor, decay: Tensor, after: Tensor | None = None) -> Tensor:
    """Return x_t = delta_t + decay_t x_{t+1}, from ``after`` or 0."""
    carry = torch.zeros_like(delta[0]) if after is None else after
    rows = []
    for d, k in zip(reversed(delta.unbind(0)), reversed(decay.unbind(0)), strict=True):
        carry = d + k * carry
        rows.append(carry)
    return torch.stack(rows[::-1])


def error(x: Steps, stops: Tensor) -> Tensor:
    """Return δ with the bootstrap masked by ``stops``."""
    return x.reward + x.gamma * masked(x.next_value, stops) - x.value


def _gae(rule: Callable[[Steps], tuple[Tensor, Tensor]]) -> Callable[..., Any]:
    """Return a function like `returns.gae` from a rule that makes δ and the decay of the trace."""

    def gae(
        reward: Tensor,
        value: Tensor,
        next_value: Tensor,
        terminated: Tensor,
        truncated: Tensor,
        *,
        gamma: Scalar = 0.99,
        lmbda: Scalar = 0.95,
        carry: Tensor | None = None,
        mask: Tensor | None = None,
        differentiable: bool = False,
        dim: int = 0,
    ) -> returns.Advantage:
        del mask, differentiable
        fields = (reward, value, next_value, terminated, truncated)
        rolling = [torch.as_tensor(n, dtype=reward.dtype).expand_as(reward) for n in (gamma, lmbda)]
        x = Steps(*(field.movedim(dim, 0) for field in (*fields, *rolling)))
        advantage = backward(*rule(x), carry).movedim(0, dim)
        return returns.Advantage(advantage, advantage + value)

    return gae


def _trace(x: Steps, cut: Tensor) -> Tensor:
    return masked(x.gamma * x.lmbda, cut)


def _across(x: Steps) -> tuple[Tensor, Tensor]:
    next_value = shifted(x.value, x.next_value[-1:])
    return error(x._replace(next_value=next_value), x.terminated), _trace(x, x.done)


def _rolled(x: Steps) -> tuple[Tensor, Tensor]:
    terminated = shifted(x.terminated, x.terminated[-1:])
    done = shifted(x.done, x.done[-1:])
    return error(x, terminated), _trace(x, done)


def _multiplied(x: Steps) -> tuple[Tensor, Tensor]:
    go_on = (~x.terminated).to(x.reward.dtype)
    return x.reward + x.gamma * x.next_value * go_on - x.value, _trace(x, x.done)


def _no_last_bootstrap(x: Steps) -> tuple[Tensor, Tensor]:
    last = torch.zeros_like(x.terminated)
    last[-1] = True
    return error(x, x.terminated | last), _trace(x, x.done)


def _last_is_zero(x: Steps) -> tuple[Tensor, Tensor]:
    delta = error(x, x.terminated)
    return torch.cat([delta[:-1], torch.zeros_like(delta[-1:])]), _trace(x, x.done)


def _one_lambda_missing(x: Steps) -> tuple[Tensor, Tensor]:
    right = backward(error(x, x.terminated), _trace(x, x.done))
    following = shifted(right, torch.zeros_like(right[-1:]))
    delta = error(x, x.terminated) + masked(x.gamma, x.done) * masked(following, x.done)
    return delta, torch.zeros_like(delta)


def _exchanged(x: Steps) -> tuple[Tensor, Tensor]:
    swapped = x._replace(gamma=x.lmbda, lmbda=x.gamma)
    return error(swapped, x.terminated), _trace(x, x.done)


def _first_gamma(x: Steps) -> tuple[Tensor, Tensor]:
    same = x._replace(gamma=x.gamma[:1].expand_as(x.gamma))
    return error(same, x.terminated), _trace(same, x.done)


_GAE_RULES: tuple[tuple[str, str, Callable[[Steps], tuple[Tensor, Tensor]]], ...] = (
    (
        "M01",
        "truncation treated as termination",
        lambda x: (error(x, x.done), _trace(x, x.done)),
    ),
    (
        "M03",
        "the trace runs through truncations",
        lambda x: (error(x, x.terminated), _trace(x, x.terminated)),
    ),
    ("M05", "the next value is that of the next row, across the end of an episode", _across),
    ("M06", "the flags are shifted by one row", _rolled),
    (
        "M07",
        "the value after a termination is not masked",
        lambda x: (error(x, torch.zeros_like(x.done)), _trace(x, x.done)),
    ),
    ("M08", "masking by multiplication, which lets NaN through", _multiplied),
    ("M09", "the last row does not bootstrap", _no_last_bootstrap),
    ("M09b", "the last advantage is 0", _last_is_zero),
    ("M10", "one factor lambda is missing", _one_lambda_missing),
    ("M11", "gamma and lambda are exchanged", _exchanged),
    ("M12", "the discount of the first row is used in all rows", _first_gamma),
)
GAE = tuple(Mistake(name, sentence, _gae(rule)) for name, sentence, rule in _GAE_RULES)


def _done_with_rolling_lambda(*args: Any, lmbda: Scalar = 0.95, **options: Any) -> Any:
    right = not (isinstance(lmbda, Tensor) and lmbda.ndim)
    return (returns.gae if right else GAE[0].function)(*args, lmbda=lmbda, **options)


GAE += (
    Mistake(
        "M02",
        "truncation treated as termination where lambda is a tensor",
        _done_with_rolling_lambda,
    ),
)


def _lambda_return_uncut(
    reward: Tensor, next_value: Tensor, terminated: Tensor, truncated: Tensor, **options: Any
) -> Tensor:
    return returns.td_lambda(reward, next_value, terminated, torch.zeros_like(truncated), **options)


def _of_done(right: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def target(
        reward: Tensor, next_value: Tensor, terminated: Tensor, truncated: Tensor, **options: Any
    ) -> Tensor:
        return right(reward, next_value, terminated | truncated, truncated, **options)

    return target


def _unmasked(
    reward: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor | None = None,
    *,
    gamma: Scalar = 0.99,
    **options: Any,
) -> Tensor:
    del terminated, truncated, options
    return reward + gamma * next_value


def _multiplied_target(
    reward: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor | None = None,
    *,
    gamma: Scalar = 0.99,
    **options: Any,
) -> Tensor:
    del truncated, options
    return reward + gamma * next_value * (~terminated).to(reward.dtype)


TD0 = (
    Mistake("M01", "truncation treated as termination", _of_done(returns.td0)),
    Mistake("M07", "the value after a termination is not masked", _unmasked),
    Mistake("M08", "masking by multiplication, which lets NaN through", _multiplied_target),
)
TD1 = (Mistake("M01", "truncation treated as termination", _of_done(returns.td1)),)
TD_LAMBDA = (
    Mistake("M04", "truncation treated as termination", _of_done(returns.td_lambda)),
    Mistake("M03", "the trace runs through truncations", _lambda_return_uncut),
)


def _window_across_the_end(
    reward: Tensor, next_value: Tensor, terminated: Tensor, truncated: Tensor, **options: Any
) -> Tensor:
    never = torch.zeros_like(terminated)
    return returns.n_step(reward, next_value, never, never, **options)


def _gamma_once(
    reward: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    n: int,
    gamma: Scalar = 0.99,
    **options: Any,
) -> Tensor:
    merged = returns.n_step_transition(reward, terminated, truncated, n=n, gamma=gamma, **options)
    dim = options.get("dim", 0)
    bootstrap = next_value.gather(dim, merged.last_row)
    return merged.reward + gamma * masked(bootstrap, merged.terminated)


N_STEP = (
    Mistake("M15", "the window crosses the end of an episode", _window_across_the_end),
    Mistake("M16", "the bootstrap is discounted by gamma, not gamma to the n", _gamma_once),
    Mistake("M01", "truncation treated as termination", _of_done(returns.n_step)),
)


def _through_the_end(
    reward: Tensor, terminated: Tensor, truncated: Tensor, **options: Any
) -> Tensor:
    never = torch.zeros_like(terminated)
    return returns.reward_to_go(reward, never, never, **options)


REWARD_TO_GO = (Mistake("M17", "the sum runs through the end of an episode", _through_the_end),)


def _reads_the_next_trajectory(
    log_prob: Tensor,
    behavior_log_prob: Tensor,
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: Scalar = 0.99,
    rho_clip: Scalar | None = 1.0,
    dim: int = 0,
    **options: Any,
) -> returns.VTrace:
    inputs = (reward, value, next_value, terminated, truncated)
    right = returns.vtrace(
        log_prob,
        behavior_log_prob,
        *inputs,
        gamma=gamma,
        rho_clip=rho_clip,
        dim=dim,
        **options,
    )
    target = right.value_target.movedim(dim, 0)
    ahead = shifted(target, next_value.movedim(dim, 0)[-1:]).movedim(0, dim)
    weight = right.rho if rho_clip is None else right.rho.clamp(max=float(rho_clip))
    advantage = weight * (reward + gamma * masked(ahead, terminated) - value)
    return right._replace(advantage=advantage)


def _vtrace_multiplied(*inputs: Tensor, **given: Any) -> returns.VTrace:
    """Let NaN through as products by 0 do: a row is NaN where its bootstrap is, or a later one."""
    names = ("log_prob", "behavior_log_prob", "reward", "value", "next_value", "terminated")
    given |= dict(zip((*names, "truncated"), inputs, strict=False))
    leak = (0.0 * given["next_value"]).flip(0).cumsum(0).flip(0)
    given["reward"] = given["reward"] + leak
    return returns.vtrace(**given)


def _vtrace_of_done(*inputs: Tensor, **given: Any) -> returns.VTrace:
    names = ("log_prob", "behavior_log_prob", "reward", "value", "next_value")
    given |= dict(zip((*names, "terminated", "truncated"), inputs, strict=False))
    given["terminated"] = given["terminated"] | given["truncated"]
    return returns.vtrace(**given)


VTRACE = (
    Mistake("M13", "the advantage reads the next trajectory", _reads_the_next_trajectory),
    Mistake(
        "M14",
        "target and behaviour log-probabilities are exchanged",
        lambda log_prob, behavior_log_prob, *inputs, **options: returns.vtrace(
            behavior_log_prob, log_prob, *inputs, **options
        ),
    ),
    Mistake(
        "M01",
        "truncation treated as termination",
        _vtrace_of_done,
    ),
)
