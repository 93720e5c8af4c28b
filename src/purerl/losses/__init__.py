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

from .policy_gradient import Baseline as Baseline
from .policy_gradient import a2c as a2c
from .policy_gradient import entropy_bonus as entropy_bonus
from .policy_gradient import joint_log_prob as joint_log_prob
from .policy_gradient import reinforce as reinforce
from .proximal import ppo_clip as ppo_clip
from .proximal import ppo_kl_beta_update as ppo_kl_beta_update
from .proximal import ppo_kl_penalty as ppo_kl_penalty
from .ratio import ClipEpsilon as ClipEpsilon
from .ratio import KLEstimator as KLEstimator
from .ratio import approx_kl as approx_kl
from .ratio import clip_fraction as clip_fraction
from .ratio import effective_sample_size as effective_sample_size
from .statistics import Singleton as Singleton
from .statistics import explained_variance as explained_variance
from .statistics import normalize_advantage as normalize_advantage
from .value import ClipMode as ClipMode
from .value import value_loss as value_loss
