"""Environments as pure functions."""

from . import probe as probe
from .classic import acrobot as acrobot
from .classic import cartpole as cartpole
from .classic import mountain_car as mountain_car
from .classic import mountain_car_continuous as mountain_car_continuous
from .classic import pendulum as pendulum
from .core import Environment as Environment
from .core import Step as Step
from .core import auto_reset as auto_reset
from .gymnasium import Guarded as Guarded
from .gymnasium import HostEnvironment as HostEnvironment
from .gymnasium import HostStep as HostStep
from .gymnasium import environment_seeds as environment_seeds
from .gymnasium import gymnasium as gymnasium
from .registry import ENVIRONMENTS as ENVIRONMENTS
from .registry import make as make
