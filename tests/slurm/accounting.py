"""Accounting for the test cluster: MariaDB and slurmdbd with state of their own, so that ``sacct``
answers.
"""

import contextlib
import shutil
import signal
import subprocess
from pathlib import Path

PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db", "mariadb", "sacct", "sacctmgr")
CONFIGURATION = "slurmdbd.conf"
ACCOUNT = "calgrid"

#: what slurm.conf says in place of ``accounting_storage/none``
SLURM_CONF = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={state}/munge.socket
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment
"""
SLURMDBD_CONF = """{mark}{state}
AuthType=auth/munge
AuthInfo=socket={state}/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
LogFile={state}/slurmdbd.log
PidFile={state}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
"""
GRANT = (
    "CREATE USER 'slurm'@'127.0.0.1' IDENTIFIED BY 'slurm'; GRANT ALL ON slurm_acct_db.* TO "
    "'slurm'@'127.0.0.1';"
)


def why_not() -> str:
    """Why there can be no accounting here; empty if there can."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    return (
        f"SLURM's accounting is not installed here ({', '.join(missing)} not found)"
        if missing
        else ""
    )


class Database:
    """A MariaDB server on the loopback interface, its data in ``state``."""

    def __init__(self, state: Path, port: int) -> None:
        self.state, self.port = state / "mariadb", port
        self.socket = self.state / "socket"
        self.process: subprocess.Popen | None = None

    def start(self, wait_for) -> None:
        """Make the data folder, start the server, and a user for slurmdbd; ``wait_for`` as in the
        cluster.
        """
        method = "--auth-root-authentication-method=normal"
        self._run(
            "mariadb-install-db", "--no-defaults", f"--datadir={self.state}", "--user=root", method
        )
        where = [f"--datadir={self.state}", f"--socket={self.socket}", f"--port={self.port}"]
        options = ["--bind-address=127.0.0.1", "--user=root", "--innodb-lock-wait-timeout=900"]
        server = ["mariadbd", "--no-defaults", *where, *options]
        with (self.state / "server.log").open("w") as log:
            self.process = subprocess.Popen(server, stdout=log, stderr=log)
        wait_for(self.socket.exists, "the database", 60)
        asked = (f"--socket={self.socket}", "--user=root", f"--execute={GRANT}")
        self._run("mariadb", "--no-defaults", *asked)

    @staticmethod
    def _run(*command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (
            f"{command[0]} ended with {done.returncode}: {done.stdout}{done.stderr}"
        )

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=30)
        self.process.kill()
        self.process.wait()


def configure(folder: Path, mark: str, state: Path, port: int, database: int) -> None:
    """Write slurmdbd.conf, which slurmdbd wants for its user's eyes only."""
    path = folder / CONFIGURATION
    path.touch(0o600)
    path.write_text(SLURMDBD_CONF.format(mark=mark, state=state, port=port, database=database))
    path.chmod(0o600)


def add_account(command) -> None:
    """Tell the accounting of an account for root; ``command`` runs one."""
    add = ("sacctmgr", "--immediate", "add")
    command(*add, "account", ACCOUNT, "Description=test", "Organization=test")
    command(*add, "user", "root", f"Account={ACCOUNT}")
