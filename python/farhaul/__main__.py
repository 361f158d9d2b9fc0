"""The program ``farhaul``, as the script of the package and as ``python -m farhaul``."""

import signal
import sys
import sysconfig
from pathlib import Path

from . import _farhaul


def main() -> int:
    """Runs the command line."""
    # The program has its own answers to interrupts. One that is ignored, as under nohup, stays so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    program = sys.argv[0]
    if Path(program).name == "__main__.py":
        program = str(Path(sysconfig.get_path("scripts"), "farhaul"))
    return _farhaul.main([program, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
