"""Module that local worker processes import before they join.

When their parent ends, it removes their files and ends them.
"""

import os
import shutil
import threading
import time
from typing import TYPE_CHECKING

from bentpipe.runs import worker_tasks

if TYPE_CHECKING:
    from distributed import Worker

__all__ = ["FOLDER", "PARENT", "dask_setup", "worker_tasks"]

PARENT = "BENTPIPE_PARENT"
"""Environment variable with the id of the parent process."""
FOLDER = "BENTPIPE_FOLDER"
"""Environment variable with the folder of the workers' files."""


def dask_setup(worker: "Worker") -> None:
    """Watch the parent process; called by Dask. Otherwise a long run would keep the process alive."""
    del worker
    threading.Thread(target=_watch, args=(int(os.environ[PARENT]),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    # Every worker tries: what is written meanwhile, the last one removes.
    shutil.rmtree(os.environ[FOLDER], ignore_errors=True)
    os._exit(1)
