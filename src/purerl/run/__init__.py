"""The run: a driver over the pure functions, with logs, evaluation, pictures and a command."""

from .evaluate import Evaluation as Evaluation
from .evaluate import evaluate as evaluate
from .train import Result as Result
from .train import train as train
