"""Profiles: dev for a person at work, ci (derandomised), nightly."""

from __future__ import annotations

import os

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("dev", max_examples=25, deadline=None)
settings.register_profile(
    "ci", max_examples=100, deadline=None, derandomize=True, database=None, print_blob=True
)
settings.register_profile("nightly", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
