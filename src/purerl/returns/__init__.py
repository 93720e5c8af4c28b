"""Value estimators: time first, elementwise in every other dimension, without gradient.

Everywhere: e is ``terminated``, the end of the process, which masks the bootstrap; d is
``terminated | truncated``, the end of the trajectory, which cuts the trace. Termination wins. The
last row of a window is an ordinary row: unless it terminated, it bootstraps from its own
``next_value``, the value of its *true* successor. ``next_value`` where terminated, and whatever
follows an end, may hold anything, NaN included.

Options that all estimators share:

    gamma, lmbda    a number, 0-d, or shaped like the reward: then each row discounts with its own
    mask            bool; an invalid row yields 0 and is a window end for the row before
    differentiable  let gradients through; by default a target is a constant
    dim             the time dimension; the results have the layout of the inputs

All floating inputs share one dtype. Halves are accumulated in float32 and rounded once.
"""

from __future__ import annotations

from .advantage import Advantage as Advantage
from .advantage import gae as gae
from .multistep import NStepTransition as NStepTransition
from .multistep import n_step as n_step
from .multistep import n_step_transition as n_step_transition
from .off_policy import PolicyBootstrap as PolicyBootstrap
from .off_policy import Trace as Trace
from .off_policy import VTrace as VTrace
from .off_policy import retrace as retrace
from .off_policy import vtrace as vtrace
from .td import Bootstrap as Bootstrap
from .td import reward_to_go as reward_to_go
from .td import td0 as td0
from .td import td1 as td1
from .td import td_lambda as td_lambda
