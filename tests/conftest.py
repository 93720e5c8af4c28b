"""Every test runs on one thread, with uninitialised memory filled and warnings as errors."""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import torch

torch.set_num_threads(1)
