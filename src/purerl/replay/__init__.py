"""Replay buffers as values: a ring is a state and pure functions of it.

    buffer = replay.ring(capacity, example, storage=…, sampler=…, transform=…)
    state = buffer.init()
    state = buffer.add(state, batch)                       # donates its argument
    batch, info = buffer.sample(state, key, batch_size)

All that a buffer is lies in the leaves of its state, so a saved and loaded state goes on to the
bit, a population of buffers is a state with a leading axis under ``torch.vmap``, and a fork is a
copy. Randomness comes from keys only. See `Buffer` for donation.

Rows are what the example says. Parts that look into rows go by the names of transition fields:
``reward``, ``terminated``, ``truncated``, ``observation``, ``next_observation`` and ``mask``.
"""

from __future__ import annotations

from .compact import compact as compact
from .memmap import memmap_storage as memmap_storage
from .mixture import Mixture as Mixture
from .mixture import mixture as mixture
from .n_step import Transform as Transform
from .n_step import n_step as n_step
from .prioritized import index_from_uniform as index_from_uniform
from .prioritized import prioritized as prioritized
from .ragged import list_storage as list_storage
from .ring import Buffer as Buffer
from .ring import ring as ring
from .sampler import Sampler as Sampler
from .slices import slices as slices
from .state import Info as Info
from .state import ReplayState as ReplayState
from .state import with_hparams as with_hparams
from .storage import Storage as Storage
from .storage import tensor_storage as tensor_storage
from .uniform import uniform as uniform
from .uniform import without_replacement as without_replacement
