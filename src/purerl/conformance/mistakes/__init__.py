"""Mistakes that have been made in public, one module for each kind of function.

They are what a report compares a user's numbers with, and what the tests of purerl must detect.
"""

from __future__ import annotations

from .estimators import GAE as GAE
from .estimators import N_STEP as N_STEP
from .estimators import REWARD_TO_GO as REWARD_TO_GO
from .estimators import TD0 as TD0
from .estimators import TD1 as TD1
from .estimators import TD_LAMBDA as TD_LAMBDA
from .estimators import VTRACE as VTRACE
from .mistake import Mistake as Mistake
from .objectives import NORMALIZE_ADVANTAGE as NORMALIZE_ADVANTAGE
from .objectives import PPO_CLIP as PPO_CLIP
from .objectives import SAC_TARGET as SAC_TARGET
from .objectives import VALUE_LOSS as VALUE_LOSS
from .squashing import TANH_NORMAL_LOG_PROB as TANH_NORMAL_LOG_PROB
