"""A real SLURM cluster of two nodes on this machine: munged, slurmctld and two slurmd, and the two
files in /etc/slurm.

The configuration must lie in the default place, because job steps do not inherit ``SLURM_CONF``;
left behind without a controller it would make every SLURM command (and so every start of Snakemake)
wait for one, so it is removed on stop. Each node has one processor core and one GPU, a stand-in
that only schedules: a device file like ``/dev/null``.
"""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel")
FOLDER = Path("/etc/slurm")
FILES = {name: FOLDER / name for name in ("slurm.conf", "gres.conf")}
MARK = "# test cluster of calgrid, state in "
NODES = ("calgrid1", "calgrid2")
STEP_SECONDS = 0.1

SLURM_CONF = """{mark}{state}
ClusterName=calgrid
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={state}/munge.socket
StateSaveLocation={state}/slurmctld
SlurmdSpoolDir={state}/%n
SlurmctldPidFile={state}/slurmctld.pid
SlurmdPidFile={state}/%n.pid
SlurmctldLogFile={state}/slurmctld.log
SlurmdLogFile={state}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MinJobAge=3600
KillWait=5
SchedulerParameters=batch_sched_delay=0
ReturnToService=0
SlurmdTimeout=60
SlurmdParameters=config_overrides
"""
NODE = (
    "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 RealMemory=20000 "
    "Gres=gpu:1\n"
)
PARTITIONS = """PartitionName=main Nodes=ALL Default=YES MaxTime=1440 PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=1440 PriorityTier=10
"""


def why_not() -> str:
    """Why no cluster can be started here; empty if one can."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"SLURM is not installed here ({', '.join(missing)} not found)"
    if os.geteuid() != 0:
        return "starting a SLURM cluster takes the rights of root"
    foreign = [
        str(path) for path in FILES.values() if path.exists() and not _is_ours(FILES["slurm.conf"])
    ]
    return (
        f"this machine has a SLURM configuration of its own ({', '.join(foreign)})"
        if foreign
        else ""
    )


def _is_ours(path: Path) -> bool:
    return path.is_file() and path.read_text().startswith(MARK)


def wait_for(condition, what, seconds=300.0):
    """Return the first true value of ``condition()``; AssertionError naming ``what`` after
    ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain for {what}"
        time.sleep(STEP_SECONDS)
    return value


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Cluster:
    """Starts on entering, stops and removes its configuration on leaving; one at a time on a
    machine.
    """

    def __enter__(self):
        # a second process that wants a cluster (tests run in two) waits for this one's end
        self._turn = Path(tempfile.gettempdir(), "calgrid-test-cluster.turn").open("w")
        fcntl.flock(self._turn, fcntl.LOCK_EX)
        if _is_ours(FILES["slurm.conf"]):  # left behind by a process that was killed
            self.state = Path(FILES["slurm.conf"].read_text().splitlines()[0].removeprefix(MARK))
            self._stop()
        self.state = Path(tempfile.mkdtemp(prefix="calgrid-slurm-"))
        try:
            self._configure()
            self._start_munge()
            self._daemon("slurmctld")
            for node in NODES:
                self._daemon("slurmd", "-N", node)
            wait_for(lambda: self.states() == dict.fromkeys(NODES, "idle"), "idle nodes", 60)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._stop()
        self._turn.close()

    # start and stop

    def _configure(self):
        for name in ("slurmctld", *NODES):
            (self.state / name).mkdir()
        for node in NODES:
            os.mknod(self.state / f"gpu-{node}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        controller, *ports = _free_ports(1 + len(NODES))
        host = socket.gethostname()
        nodes = "".join(
            NODE.format(node=n, host=host, port=p) for n, p in zip(NODES, ports, strict=True)
        )
        settings = SLURM_CONF.format(mark=MARK, state=self.state, host=host, port=controller)
        FOLDER.mkdir(exist_ok=True)
        FILES["slurm.conf"].write_text(settings + nodes + PARTITIONS)
        FILES["gres.conf"].write_text(
            "".join(f"NodeName={n} Name=gpu File={self.state}/gpu-{n}\n" for n in NODES)
        )

    def _start_munge(self):
        key = self.state / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))
        self.state.chmod(0o755)
        files = {"key-file": key, "socket": "munge.socket", "seed-file": "munged.seed"}
        files |= {"pid-file": "munged.pid", "log-file": "munged.log"}
        self._daemon(
            "munged", *(f"--{option}={self.state / name}" for option, name in files.items())
        )

    def _daemon(self, *command):
        log = self.state / "start.log"
        with log.open("a") as stream:  # not a pipe, which the daemon would keep open
            code = subprocess.run(command, stdout=stream, stderr=stream, check=False).returncode
        assert code == 0, f"{' '.join(command)} ended with {code}: {log.read_text()}"

    def _stop(self):
        """Cancel all jobs, end all daemons, remove the configuration; never raises for what is
        already gone.
        """
        with contextlib.suppress(AssertionError):
            if self._pid("slurmctld"):
                self.try_command("scancel", "--full", "--user=root")
                wait_for(lambda: not self.squeue(), "the end of all jobs", 20)
        for path in FILES.values():
            path.unlink(missing_ok=True)
        for name in (*NODES, "slurmctld", "munged"):
            _end(self._pid(name))
        shutil.rmtree(self.state, ignore_errors=True)

    def _pid(self, name):
        with contextlib.suppress(OSError, ValueError):
            return int((self.state / f"{name}.pid").read_text())
        return 0

    # what the tests ask and do

    def try_command(self, *command):
        """A SLURM command that may be refused."""
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def command(self, *command):
        """Standard output of a SLURM command that must succeed."""
        done = self.try_command(*command)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def squeue(self):
        """Jobs that are pending, running or ending."""
        return self.command("squeue", "--noheader", "--format=%i").split()

    def states(self):
        """State of each node."""
        listed = self.command("sinfo", "--Node", "--noheader", "--partition=main", "--format=%N %t")
        return dict(line.split() for line in listed.splitlines())

    def jobs(self, comment=""):
        """All jobs, oldest first, whose comment (rule and wildcards) holds a text."""
        lines = self.command("scontrol", "--oneliner", "show", "jobs").splitlines()
        found = [
            dict(re.findall(r"(\w[\w:/]*)=(\S*)", line))
            for line in lines
            if line.startswith("JobId=")
        ]
        found.sort(key=lambda job: int(job["JobId"]))
        return [job for job in found if comment in job.get("Comment", "")]

    def job(self, job):
        """A job as it is now."""
        return next(other for other in self.jobs() if other["JobId"] == job["JobId"])

    def logs(self):
        """What the daemons wrote, for a failed test."""
        return "\n".join(
            f"{path.name}:\n{path.read_text()[-3000:]}" for path in sorted(self.state.glob("*.log"))
        )


def _end(pid):
    """End a daemon and wait for it; it is no child of ours."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, AssertionError):
            if pid > 0:
                os.kill(pid, number)
                wait_for(lambda: not Path(f"/proc/{pid}").exists(), f"the end of process {pid}", 10)
