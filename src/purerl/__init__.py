"""Reinforcement learning as pure functions in PyTorch."""

__version__ = "0.1.0.dev0"
