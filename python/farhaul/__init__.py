"""farhaul: bulk data over long fat networks, and a laboratory of the transports that move it.

Calls wait on threads of their own with the interpreter's lock released. What fails raises an
exception of :mod:`farhaul.errors`, one class per row of the table of exit codes.
"""

from . import aio, errors
from ._calls import Cancel
from ._executors import ExecutorError
from ._farhaul import (
    AckEvent,
    Allowance,
    Arrival,
    LossEvent,
    PathView,
    RateSample,
    TxSnapshot,
    __version__,
)
from .commands import (
    Bench,
    BenchServer,
    Report,
    Server,
    bench,
    bench_server,
    copy,
    doctor,
    ls,
    protocols,
    serve,
)
from .errors import Error
from .laws import CongestionController, ReceiverLaw
from .scenario import Flow, Path, Scenario
from .simulation import Series, Simulation, simulate
from .sharded import copy_sharded
from .sweep import Sweep, sweep

__all__ = [
    "AckEvent",
    "Allowance",
    "Arrival",
    "Bench",
    "BenchServer",
    "Cancel",
    "CongestionController",
    "Error",
    "ExecutorError",
    "Flow",
    "LossEvent",
    "Path",
    "PathView",
    "RateSample",
    "ReceiverLaw",
    "Report",
    "Scenario",
    "Series",
    "Server",
    "Simulation",
    "Sweep",
    "TxSnapshot",
    "__version__",
    "aio",
    "bench",
    "bench_server",
    "copy",
    "copy_sharded",
    "doctor",
    "errors",
    "ls",
    "protocols",
    "serve",
    "simulate",
    "sweep",
]
