"""A Slurm of one host, for a test: its own folder, its own network name space, gone with it."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo", "nsenter")

CONF = """\
ClusterName=test
SlurmctldHost={name}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
NodeName={name} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes={name} Default=YES OverSubscribe=FORCE:8 State=UP
"""


def why_not():
    if os.geteuid() != 0:
        return "a Slurm of one's own takes root"
    missing = [program for program in PROGRAMS if shutil.which(program, path=_path()) is None]
    return f"a Slurm of one's own takes {', '.join(missing)} (slurm-wlm)" if missing else None


class Slurm:
    """`folder` is short and world-readable: sockets and munge want that."""

    def __init__(self, host, folder):
        if reason := why_not():
            pytest.skip(reason)
        self._host, self._folder, self._daemons = host, folder, []
        folder.chmod(0o755)
        for name in ("state", "spool"):
            (folder / name).mkdir()
        (folder / "key").write_bytes(os.urandom(1024))
        (folder / "key").chmod(0o600)
        text = CONF.format(name=socket.gethostname(), folder=folder, cores=os.cpu_count())
        (folder / "slurm.conf").write_text(text)
        self._environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": _path()}
        munge = [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")]
        self._start("munged", "--foreground", "--force", f"--key-file={folder}/key", f"--socket={folder}/socket", *munge)
        self._start("slurmctld", "-D")
        self._start("slurmd", "-D")
        self._wait()

    def srun(self, size, *command, **environment):
        """What the tasks print."""
        done = subprocess.run(
            self._there(["srun", "--overcommit", "-n", size, *command]),
            env={**self._environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
            capture_output=True,
            text=True,
            timeout=90,
        )
        if done.returncode != 0:
            raise AssertionError(f"srun: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def _there(self, command):
        """Only the network is the host's: slurmd looks for control groups in /sys, which `ip netns exec` replaces."""
        return ["nsenter", f"--net=/run/netns/{self._host.name}", *map(str, command)]

    def close(self):
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _start(self, *command):
        with open(self._folder / f"{command[0]}.out", "w") as out:
            self._daemons.append(subprocess.Popen(self._there(command), env=self._environment, stdout=out, stderr=out))

    def _wait(self):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            told = subprocess.run(self._there(["sinfo", "-h", "-o", "%T"]), env=self._environment, capture_output=True, text=True)
            if told.stdout.strip() == "idle":
                return
            time.sleep(0.2)
        self.close()
        pytest.skip(f"Slurm does not start here: {(self._folder / 'slurmctld.out').read_text()[-500:]}{told.stderr}")


def _path():
    return os.environ["PATH"] + os.pathsep + "/usr/sbin"
