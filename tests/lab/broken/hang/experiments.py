"""An experiment that ends immediately and an experiment that never ends, for an interruption."""

from __future__ import annotations

import os
import time
from typing import Any

from snippets.lab.experiment import Experiment, Instruments


def steady(instruments: Instruments, device: str) -> dict[str, Any]:
    return {"answer": 42}


def hangs(instruments: Instruments, device: str) -> dict[str, Any]:
    with open(os.environ["WORKER_PID_FILE"], "w", encoding="utf-8") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
    return {}


EXPERIMENTS = (
    Experiment(chapter="hang", name="steady", probe=steady),
    Experiment(chapter="hang", name="hangs", probe=hangs),
)
