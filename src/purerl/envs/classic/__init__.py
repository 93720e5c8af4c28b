"""Classic control with gymnasium's dynamics."""

from .acrobot import acrobot as acrobot
from .cartpole import cartpole as cartpole
from .mountain_car import mountain_car as mountain_car
from .mountain_car import mountain_car_continuous as mountain_car_continuous
from .pendulum import pendulum as pendulum
