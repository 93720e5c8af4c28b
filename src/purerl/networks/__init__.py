"""Networks as pairs of pure functions, ``init(key) -> params`` and ``apply(params, …)``.

Parameters are a TensorDict; ``apply`` only indexes into them, so nested plain dicts do as well.
"""

from __future__ import annotations

from .cnn import Layout as Layout
from .cnn import cnn as cnn
from .ensemble import ensemble as ensemble
from .heads import QKind as QKind
from .heads import ScaleKind as ScaleKind
from .heads import actor_critic as actor_critic
from .heads import gaussian_head as gaussian_head
from .heads import q_network as q_network
from .initialization import Initialization as Initialization
from .mlp import Activation as Activation
from .mlp import mlp as mlp
from .module import apply_with_buffers as apply_with_buffers
from .module import from_module as from_module
from .network import Network as Network
from .observation import flatten_observation as flatten_observation
