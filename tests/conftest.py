"""One thread per test process: the suite runs two processes, and threads would fight over cores."""

from __future__ import annotations

import torch
from hypothesis import settings

torch.set_num_threads(1)

settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")
