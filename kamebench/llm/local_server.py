"""The embedded model's server, a process of its own: `python -m kamebench.llm.local_server MODEL THREADS`.

Prints its address once it is ready and ends when its standard input closes, so that it never outlives the
process that started it, however that one ended.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


def main() -> None:
    xllamacpp: Any = importlib.import_module("xllamacpp")  # compiled, without types
    model, threads = sys.argv[1:3]
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 4096
    params.n_parallel = 1
    params.cpuparams.n_threads = int(threads)
    params.cpuparams_batch.n_threads = int(threads)
    params.n_gpu_layers = 0
    params.sampling.seed = 0
    params.warmup = True
    params.ui = False
    params.verbosity = 0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
