"""Losses as functions of network outputs: no network, no environment, no random draw inside.

Every loss takes rows ``[*B]``, any number of dimensions, and returns ``(loss, metrics)``. Options
that they share:

    mask         bool ``[*B]``; a False row counts nowhere, and may hold anything, NaN included
    weight       floating ``[*B]``, a constant, such as the importance weights of a replay
    weight_mode  ``"mean"`` Σ w ℓ / n, or ``"normalized"`` Σ w ℓ / Σ w (TorchRL)
    reduction    ``"mean"``, ``"sum"``, or ``"none"``, which returns the rows

Shapes must match exactly: ``[B]`` beside ``[B, 1]`` is a `ShapeError`. Ensembles have the member
axis in front, ``[K, *B]``; actions, atoms and quantiles come last. Floating inputs are promoted to
one dtype; halves are computed in float32 and rounded once. What the theory holds constant (targets,
advantages, weights, temperatures where they are not what learns) gets a gradient of exactly zero.

Metrics are detached 0-d tensors under flat names, such as ``"clip_fraction"`` or ``"q_mean"``, for
the caller to nest; means are over the rows that count, unweighted. Two are not 0-d: ``"priority"``
``[*B]``, one number a row for prioritised replay, and ``"gap"`` ``[K]`` of the CQL penalty. Losses
themselves are not repeated among the metrics.
"""

from __future__ import annotations

from .bellman import CriticReduce as CriticReduce
from .bellman import CriticSum as CriticSum
from .categorical import c51 as c51
from .categorical import c51_target as c51_target
from .categorical import c51_value as c51_value
from .cql import cql_alpha_prime as cql_alpha_prime
from .cql import cql_bc_actor as cql_bc_actor
from .cql import cql_discrete_penalty as cql_discrete_penalty
from .cql import cql_lagrange as cql_lagrange
from .cql import cql_penalty as cql_penalty
from .cql import cql_target as cql_target
from .cql import cql_uniform_log_prob as cql_uniform_log_prob
from .ddpg import ddpg_actor as ddpg_actor
from .ddpg import ddpg_critic as ddpg_critic
from .ddpg import ddpg_target as ddpg_target
from .iql import iql_actor as iql_actor
from .iql import iql_critic as iql_critic
from .iql import iql_target as iql_target
from .iql import iql_value as iql_value
from .policy_gradient import Baseline as Baseline
from .policy_gradient import a2c as a2c
from .policy_gradient import entropy_bonus as entropy_bonus
from .policy_gradient import joint_log_prob as joint_log_prob
from .policy_gradient import reinforce as reinforce
from .proximal import ppo_clip as ppo_clip
from .proximal import ppo_kl_beta_update as ppo_kl_beta_update
from .proximal import ppo_kl_penalty as ppo_kl_penalty
from .quantiles import quantile as quantile
from .quantiles import quantile_target as quantile_target
from .ratio import ClipEpsilon as ClipEpsilon
from .ratio import KLEstimator as KLEstimator
from .ratio import approx_kl as approx_kl
from .ratio import clip_fraction as clip_fraction
from .ratio import effective_sample_size as effective_sample_size
from .redq import redq_actor as redq_actor
from .redq import redq_critic as redq_critic
from .redq import redq_target as redq_target
from .sac import sac_actor as sac_actor
from .sac import sac_critic as sac_critic
from .sac import sac_target as sac_target
from .sac_discrete import sac_discrete_actor as sac_discrete_actor
from .sac_discrete import sac_discrete_alpha as sac_discrete_alpha
from .sac_discrete import sac_discrete_critic as sac_discrete_critic
from .sac_discrete import sac_discrete_target as sac_discrete_target
from .statistics import Singleton as Singleton
from .statistics import explained_variance as explained_variance
from .statistics import normalize_advantage as normalize_advantage
from .td3 import NoiseScale as NoiseScale
from .td3 import td3_actor as td3_actor
from .td3 import td3_bc_actor as td3_bc_actor
from .td3 import td3_critic as td3_critic
from .td3 import td3_smoothed_action as td3_smoothed_action
from .td3 import td3_target as td3_target
from .temperature import AlphaForm as AlphaForm
from .temperature import project_log_alpha as project_log_alpha
from .temperature import sac_alpha as sac_alpha
from .temperature import sac_discrete_target_entropy as sac_discrete_target_entropy
from .temperature import sac_target_entropy as sac_target_entropy
from .value import ClipMode as ClipMode
from .value import value_loss as value_loss
from .value_based import action_value as action_value
from .value_based import dqn as dqn
from .value_based import dqn_target as dqn_target
