"""Probability distributions as functions over their parameters.

Sampling takes a key first, or the noise itself (``…_from_noise``, ``…_from_gumbel``) where the
noise of many steps is one draw. Half precisions are computed in float32 and returned as they came.
"""

from __future__ import annotations

from .categorical import categorical_entropy as categorical_entropy
from .categorical import categorical_expectation as categorical_expectation
from .categorical import categorical_from_gumbel as categorical_from_gumbel
from .categorical import categorical_kl as categorical_kl
from .categorical import categorical_log_prob as categorical_log_prob
from .categorical import categorical_log_probs as categorical_log_probs
from .categorical import categorical_mode as categorical_mode
from .categorical import categorical_sample as categorical_sample
from .categorical import categorical_valid as categorical_valid
from .exploration import epsilon_greedy as epsilon_greedy
from .exploration import gaussian_exploration as gaussian_exploration
from .multi_categorical import multi_categorical_entropy as multi_categorical_entropy
from .multi_categorical import multi_categorical_from_gumbel as multi_categorical_from_gumbel
from .multi_categorical import multi_categorical_kl as multi_categorical_kl
from .multi_categorical import multi_categorical_log_prob as multi_categorical_log_prob
from .multi_categorical import multi_categorical_mode as multi_categorical_mode
from .multi_categorical import multi_categorical_sample as multi_categorical_sample
from .normal import independent as independent
from .normal import normal_entropy as normal_entropy
from .normal import normal_from_noise as normal_from_noise
from .normal import normal_kl as normal_kl
from .normal import normal_log_prob as normal_log_prob
from .normal import normal_sample as normal_sample
from .scale import ScaleMap as ScaleMap
from .scale import scale_map as scale_map
from .tanh_normal import Density as Density
from .tanh_normal import TanhNormalSample as TanhNormalSample
from .tanh_normal import tanh_normal_action as tanh_normal_action
from .tanh_normal import tanh_normal_entropy as tanh_normal_entropy
from .tanh_normal import tanh_normal_from_noise as tanh_normal_from_noise
from .tanh_normal import tanh_normal_log_prob as tanh_normal_log_prob
from .tanh_normal import tanh_normal_log_prob_of_action as tanh_normal_log_prob_of_action
from .tanh_normal import tanh_normal_mode as tanh_normal_mode
from .tanh_normal import tanh_normal_sample_and_log_prob as tanh_normal_sample_and_log_prob
