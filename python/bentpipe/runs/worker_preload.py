"""What a worker process of this machine imports before it joins: it ends when what started it has ended."""

import os
import threading
import time
from typing import TYPE_CHECKING

from bentpipe.runs import worker_tasks

if TYPE_CHECKING:
    from distributed import Worker

__all__ = ["PARENT", "dask_setup", "worker_tasks"]

PARENT = "BENTPIPE_PARENT"
"""The variable with the process that started this one."""


def dask_setup(worker: "Worker") -> None:
    """Watch the parent; called by Dask. A long run would else keep the process for as long as it takes."""
    del worker
    threading.Thread(target=_watch, args=(int(os.environ[PARENT]),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
