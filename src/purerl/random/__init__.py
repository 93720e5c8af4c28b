"""Randomness from explicit keys: the streams of ``jax.random``, in torch.

A key is an int64 tensor ``[2]`` that holds the two 32-bit words of a Threefry-2x32 key, each in
[0, 2³²). Every function takes a key first and is pure: the same key gives the same result, on
the device of the key, under ``torch.vmap`` (over keys, nested too) and ``torch.compile``. No
global generator is read or written. A key is for one use; `split` it for more:

    loop_key, key = split(key).unbind(0)

Element i of a draw is a function of the key and of i alone, so the dtype or the shape of one
draw changes no other draw, and a draw under ``vmap`` over split keys is the stack of the single
draws: a loop may draw for all its steps at once.

Streams are those of jax 0.10 in its default settings (``jax_threefry_partitionable``, 32-bit
mode; float64 draws are those of its 64-bit mode). Keys, `bits`, `uniform`, `randint`,
`bernoulli` and `permutation` are equal bit for bit. The reference rounds every step of the other
float32 draws and we once: `exponential`, `normal` and `truncated_normal` are within two units in
the last place (three for a few in a million), `gumbel` within two units of max(1, abs(x)). So
`categorical` is equal unless its best two candidates are that close; float64 draws agree to
1e-13. Draws are constants: no gradient flows into a bound or a probability.

Compile draws with ``torch.compile(..., options={"realize_opcount_threshold": 8})``: by default
inductor repeats each round of the cipher within the next ones, and compiles ten times as long.
"""

from __future__ import annotations

from .continuous import exponential as exponential
from .continuous import gumbel as gumbel
from .continuous import normal as normal
from .continuous import orthogonal as orthogonal
from .continuous import truncated_normal as truncated_normal
from .continuous import uniform as uniform
from .discrete import bernoulli as bernoulli
from .discrete import categorical as categorical
from .discrete import choice as choice
from .discrete import permutation as permutation
from .discrete import randint as randint
from .keys import bits as bits
from .keys import fold_in as fold_in
from .keys import key as key
from .keys import split as split
