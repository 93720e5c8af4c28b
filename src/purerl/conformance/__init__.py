"""The kit for other people's code: whether a function is right, and if not, which mistake it is.

A check runs fixtures that were worked out by hand and laws on generated inputs against your
function. Its `Report` says what holds, the smallest input that fails, and in one sentence which
known mistake your numbers are.
"""

from __future__ import annotations

from .checks import KINDS as KINDS
from .checks import ReturnKind as ReturnKind
from .checks import check_function as check_function
from .checks import check_gae as check_gae
from .checks import check_normalize_advantage as check_normalize_advantage
from .checks import check_ppo_loss as check_ppo_loss
from .checks import check_returns as check_returns
from .checks import check_sac_target as check_sac_target
from .checks import check_tanh_normal as check_tanh_normal
from .checks import check_value_loss as check_value_loss
from .checks import check_vtrace as check_vtrace
from .mistakes import Mistake as Mistake
from .replay import check_replay as check_replay
from .report import ConformanceError as ConformanceError
from .report import Counterexample as Counterexample
from .report import Report as Report
from .report import Result as Result
