"""Losses as functions of network outputs; each returns ``(loss, metrics)``."""

from .policy_gradient import ClipMode as ClipMode
from .policy_gradient import entropy_bonus as entropy_bonus
from .policy_gradient import ppo_clip as ppo_clip
from .policy_gradient import value_loss as value_loss
from .statistics import approx_kl as approx_kl
from .statistics import clip_fraction as clip_fraction
from .statistics import effective_sample_size as effective_sample_size
from .statistics import explained_variance as explained_variance
from .statistics import normalize_advantage as normalize_advantage
