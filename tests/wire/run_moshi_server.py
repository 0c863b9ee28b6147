"""Runs the package's `moshi.server` where there is no GPU: its warm-up waits for CUDA unasked."""

from __future__ import annotations

import runpy

import torch

torch.cuda.synchronize = lambda device=None: None  # type: ignore[assignment]
torch.set_num_threads(1)
runpy.run_module("moshi.server", run_name="__main__", alter_sys=True)
