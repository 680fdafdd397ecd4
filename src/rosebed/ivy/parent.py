"""Workers end with the process that started them, also when that is killed without a word."""

import ctypes
import os
import signal
import sys
import threading
import time

LOOK_S = 1.0
_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Kill this process soon after its parent, of that id, has ended.

    Linux does so at once; but it counts the end of the thread that started us as the parent's, and knows nothing of
    one that ended before we asked, so that we look for ourselves as well.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_watch, args=(parent,), name="parent-watch", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os.kill(os.getpid(), signal.SIGKILL)
