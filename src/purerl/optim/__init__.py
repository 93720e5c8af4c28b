"""Optimizers as pairs of pure functions, gradient transforms, schedules and target updates."""

from .combinators import chain as chain
from .combinators import flat as flat
from .combinators import ravel as ravel
from .combinators import skip_nonfinite as skip_nonfinite
from .optimizer import Optimizer as Optimizer
from .optimizers import adam as adam
from .optimizers import adamw as adamw
from .optimizers import rmsprop as rmsprop
from .optimizers import sgd as sgd
from .schedules import Schedule as Schedule
from .schedules import adaptive_kl as adaptive_kl
from .schedules import constant as constant
from .schedules import cosine as cosine
from .schedules import linear as linear
from .schedules import piecewise as piecewise
from .schedules import staircase as staircase
from .targets import periodic_update as periodic_update
from .targets import polyak as polyak
from .transforms import clip as clip
from .transforms import clip_by_global_norm as clip_by_global_norm
