"""Reinforcement learning as pure functions in PyTorch."""

from . import config as config
from . import conformance as conformance
from . import control as control
from . import distributions as distributions
from . import envs as envs
from . import errors as errors
from . import losses as losses
from . import networks as networks
from . import normalize as normalize
from . import numerics as numerics
from . import optim as optim
from . import random as random
from . import recurrence as recurrence
from . import replay as replay
from . import returns as returns
from . import rollout as rollout
from . import run as run
from . import tree as tree
from .algos import ppo as ppo
from .algos import sac as sac

__version__ = "0.1.0.dev0"
