"""A cluster of Slurm on this machine, of one node, in a folder and a PID namespace of its own.

- Whatever ends the tests ends all of it: its init dies with the thread that started it, and with init every process
  of the namespace, jobs included.
- It needs neither systemd nor control groups, and changes nothing of `/etc`.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
PROGRAMS = (*DAEMONS, "sbatch", "scancel", "scontrol", "sinfo", "squeue", "setpriv", "unshare")
#: Where daemons are that no user has in PATH.
PLACES = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"

# Processors and memory are what jobs are counted by, whatever the machine has. A job that is put back may begin
# after cred_expire, 5 s at least.
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=1
SlurmdParameters=config_overrides
KillWait=5
NodeName=one NodeHostname={host} NodeAddr=127.0.0.1 CPUs=16 RealMemory=64000
PartitionName=all Nodes=ALL Default=YES DefMemPerCPU=100
"""

INIT = """\
# What processes that are killed leave there.
mount -t tmpfs tmpfs /dev/shm
munged --foreground --force --socket=munge.socket --key-file=munge.key --pid-file=munged.pid \\
    --seed-file=munged.seed &
i=0
until [ -S munge.socket ] || [ $i = 200 ]; do sleep 0.05; i=$((i + 1)); done
slurmctld -D &
slurmd -D -N one &
# The children of others are its own, too.
while :; do wait; sleep 1; done
"""


def missing() -> str | None:
    """Why there can be no such cluster here."""
    if os.geteuid() != 0:
        return "Slurm's daemons need root"
    absent = [program for program in PROGRAMS if shutil.which(program, path=PLACES) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    spaces = subprocess.run(["unshare", "--pid", "--mount-proc", "--fork", "true"], capture_output=True, text=True)
    return f"no PID namespace: {spaces.stderr.strip()}" if spaces.returncode else None


def until(holds: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Waits until something holds; fails if it does not in time."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not in {seconds} s: {what}"
        time.sleep(0.05)


class Cluster:
    """One that runs until ``stop()``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: What tells its processes from those of another.
        self.own = {"SLURM_CONF": str(folder / "slurm.conf")}
        self.environment = {"PATH": PLACES, **self.own}
        for name in ("state", "spool"):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        host = socket.gethostname().partition(".")[0]
        controller_port, node_port = _free_ports(2)
        text = CONFIGURATION.format(host=host, folder=folder, controller_port=controller_port, node_port=node_port)
        (folder / "slurm.conf").write_text(text)
        # The one plugin that asks for nothing as long as nothing is asked of it.
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (folder / "init.sh").write_text(INIT)
        # If this thread dies, so does unshare, with which its child dies.
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--mount-proc", "--fork", "--kill-child"]
        with open(folder / "log", "wb") as log:
            self._init = subprocess.Popen(
                [*words, "sh", "init.sh"],
                cwd=folder,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            until(lambda: "idle" in self.ask("sinfo", "--noheader", "--format=%T"), "the node is idle")
        except AssertionError as late:
            self.stop()
            raise AssertionError(f"{late}: {(folder / 'log').read_text(errors='replace')}") from None
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        self._init.kill()
        self._init.wait()

    def ask(self, *words: str) -> str:
        """What a command prints; nothing if it fails."""
        ran = subprocess.run(words, env={**os.environ, **self.environment}, capture_output=True, text=True)
        return ran.stdout if ran.returncode == 0 else ""

    def jobs(self, *words: str) -> list[str]:
        """The jobs that have not ended, as they are called: ``7``, ``8_[3-8]``."""
        return self.ask("squeue", "--noheader", "--format=%i", *words).split()

    def job(self, job: str) -> dict[str, str]:
        """What is known of one, by the names of ``scontrol show job``."""
        shown = self.ask("scontrol", "--oneliner", "show", "job", job)
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)


def _free_ports(count: int) -> list[int]:
    """Ports outside the range the system hands out by itself: nobody takes one until it is bound."""
    free: list[int] = []
    for port in random.SystemRandom().sample(range(10_000, 12_000), 100):
        if len(free) == count:
            return free
        try:
            socket.create_server(("", port)).close()
        except OSError:
            continue
        free.append(port)
    raise AssertionError("no port is free")
