"""Running statistics as plain values: of observations, and of returns to scale rewards by."""

from .reward import discounted_return as discounted_return
from .reward import discounted_return_step as discounted_return_step
from .reward import init_return as init_return
from .reward import scale_reward as scale_reward
from .reward import scale_rollout as scale_rollout
from .statistics import Stats as Stats
from .statistics import apply as apply
from .statistics import cumulative as cumulative
from .statistics import init as init
from .statistics import merge as merge
from .statistics import update as update
from .statistics import variance as variance
