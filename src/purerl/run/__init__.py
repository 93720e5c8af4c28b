"""The run: train several seeds at once, evaluate them, log, draw, report."""

from .algorithm import Algorithm as Algorithm
from .evaluate import EvaluateResult as EvaluateResult
from .evaluate import evaluate as evaluate
from .logging import CsvLogger as CsvLogger
from .logging import JsonlLogger as JsonlLogger
from .logging import Logger as Logger
from .plot import learning_curve as learning_curve
from .report import show as show
from .train import Result as Result
from .train import train as train
