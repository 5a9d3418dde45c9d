"""Owner locks, with real processes: one live writer, dead owners replaced by exactly one."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from calgrid.errors import ConfigError, StateError
from calgrid.storage import locks
from calgrid.storage.locks import OwnerLock

WHAT = "train stage of results/runs/x"
HOLD = f"""
import sys
from pathlib import Path
from calgrid.storage.locks import OwnerLock
with OwnerLock(Path(sys.argv[1]), "{WHAT}", wait=0):
    print("held", flush=True)
    sys.stdin.readline()
print("released", flush=True)
"""
RACE = """
import sys, time
from pathlib import Path
from calgrid.errors import StateError
from calgrid.storage.locks import OwnerLock
import os
if sys.argv[1] == "no links":
    def link(*_):
        raise PermissionError(1, "no hard links here")
    os.link = link
for line in sys.stdin:
    path, start = line.split()
    lock = OwnerLock(Path(path), "run", wait=0)
    while time.monotonic() < float(start):
        pass
    try:
        with lock:
            print("won", flush=True)
            sys.stdin.readline()
    except StateError:
        print("lost", flush=True)
        sys.stdin.readline()
    print("done", flush=True)
"""
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="needs /proc to tell processes apart"
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "train.lock"


@pytest.fixture
def holder(start_python, path):
    """A real process that holds the lock until it reads a line."""
    process = start_python(HOLD, path)
    assert process.stdout.readline() == "held\n"
    return process


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(locks, "POLL_SECONDS", 0.01)


@pytest.fixture(scope="module")
def dead():
    """What a lock says of a process of this host that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    owner = {"token": "0" * 32, "host": socket.gethostname(), "pid": process.pid}
    return {**owner, "process_start": "1", "since": "then"}


def write(path, owner):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(owner))


def left_over(path):
    return [each.name for each in path.parent.iterdir()]


def assert_taken(path, wait=0):
    """The lock is ours at once, or after a wait, and nothing of it or of its last owner stays."""
    with OwnerLock(path, WHAT, wait=wait):
        assert json.loads(path.read_text())["pid"] == os.getpid()
        assert left_over(path) == ["train.lock"]
    assert left_over(path) == []


def assert_refused(path, refuses, *parts):
    with refuses(StateError, *parts), OwnerLock(path, WHAT, wait=0):
        pass


def age(path, seconds):
    moment = time.time() - seconds
    os.utime(path, (moment, moment))


def test_it_names_its_owner_while_held_and_is_gone_afterwards(path, monkeypatch, refuses):
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    with (
        pytest.raises(ZeroDivisionError),
        OwnerLock(path, WHAT),
    ):  # released also when the work fails
        owner = json.loads(path.read_text())
        assert (owner["host"], owner["pid"]) == (socket.gethostname(), os.getpid())
        assert owner["slurm_job"] == "4711"
        assert owner["since"].startswith("20")
        assert_refused(path, refuses, "SLURM job 4711")
        assert left_over(path) == ["train.lock"]
        raise ZeroDivisionError
    assert left_over(path) == []


def test_a_second_live_writer_is_refused_by_name(path, holder, refuses):
    owner = f"process {holder.pid} on {socket.gethostname()}"
    assert_refused(path, refuses, WHAT, owner, "wait for it to end, or stop it")
    assert left_over(path) == ["train.lock"]
    assert json.loads(path.read_text())["pid"] == holder.pid


def test_a_stopped_process_is_alive_when_the_given_time_is_over(path, holder, quick, refuses):
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        with refuses(StateError, f"process {holder.pid}"), OwnerLock(path, WHAT, wait=0.1):
            pass
    finally:
        os.kill(holder.pid, signal.SIGCONT)


def test_it_waits_for_a_live_owner_and_says_so(path, holder, quick, capsys):
    def release():
        holder.stdin.write("\n")
        holder.stdin.flush()

    timer = threading.Timer(0.2, release)
    timer.start()
    with OwnerLock(path, WHAT, wait=60):
        assert json.loads(path.read_text())["pid"] == os.getpid()
    assert holder.stdout.readline() == "released\n"
    messages = capsys.readouterr().err.splitlines()
    assert len(messages) == 1
    assert f"process {holder.pid}" in messages[0]
    assert "Waiting up to 60 s" in messages[0]


@pytest.mark.parametrize("reaped", [True, pytest.param(False, marks=needs_proc)])
def test_the_lock_of_a_killed_process_is_taken_over(path, holder, reaped):
    """Also while it is a zombie: nobody may ever wait for it, for example in a container."""
    holder.kill()
    if reaped:
        holder.wait()
    else:
        holder.stdout.read()  # ends with the process
        stat = Path(f"/proc/{holder.pid}/stat")
        end = time.monotonic() + 10
        while stat.read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < end
            time.sleep(0.01)
    assert path.exists()
    assert_taken(path)


@pytest.mark.parametrize("had_it", [True, False])
def test_what_a_process_killed_while_it_takes_the_lock_leaves_is_removed(had_it, path, dead):
    if had_it:
        write(path, dead)
    write(path.with_name(f"{path.name}.{dead['token']}"), dead)
    with OwnerLock(path, WHAT, wait=0):
        assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert not list(path.parent.iterdir())


@needs_proc
def test_a_process_that_only_has_the_number_of_the_owner_is_not_the_owner(path, holder):
    reused = {**json.loads(path.read_text()), "process_start": "1"}
    write(path, reused)
    assert_taken(path)


def test_without_proc_a_running_process_of_that_number_owns_it(path, dead, monkeypatch, refuses):
    monkeypatch.setattr(locks, "_process_start", lambda _: "")
    write(path, {**dead, "pid": os.getpid(), "process_start": ""})
    assert_refused(path, refuses, f"process {os.getpid()}")
    write(path, {**dead, "process_start": ""})
    assert_taken(path)


@pytest.mark.parametrize("pid", [0, -1, None, "x"])
def test_a_lock_of_this_host_without_a_process_is_nobodys(path, dead, pid):
    write(path, {"token": "0", "host": dead["host"], "pid": pid})
    assert_taken(path)


@pytest.fixture
def unwatched(monkeypatch):
    """Trust the times of files at once."""
    monkeypatch.setattr(locks, "WATCH_SECONDS", 0)


class TestOwnerOnAnotherHost:
    @pytest.fixture(autouse=True)
    def elsewhere(self, path, dead, unwatched):
        write(path, {**dead, "host": "node17"})

    @pytest.mark.parametrize("wrong", [-1e6, 0, 1e6])
    def test_is_judged_by_times_of_the_file_system_alone(self, path, monkeypatch, refuses, wrong):
        true = time.time
        age(path, locks.STALE_SECONDS - 60)
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: true() + wrong)
            assert_refused(path, refuses, "on node17")
        assert left_over(path) == ["train.lock"]
        age(path, locks.STALE_SECONDS + 1)
        monkeypatch.setattr(time, "time", lambda: true() + wrong)
        assert_taken(path)


class TestOwnerOnAHostWithAWrongClock:
    """Files have times of the host that writes: a heart that beats is told by its beating."""

    @pytest.fixture(autouse=True)
    def elsewhere(self, path, dead, quick, monkeypatch):
        write(path, {**dead, "host": "node17"})
        monkeypatch.setattr(locks, "WATCH_SECONDS", 0.5)

    @pytest.mark.parametrize("behind", [1e7, -3600])
    def test_is_respected_while_its_heart_beats(self, path, refuses, behind):
        stop = threading.Event()

        def beat():
            begin = time.time() - behind
            for count in range(10**6):
                os.utime(path, (begin + 15 * count,) * 2)
                if stop.wait(0.1):
                    return

        heart = threading.Thread(target=beat)
        age(path, behind)
        heart.start()
        try:
            with refuses(StateError, "on node17"), OwnerLock(path, WHAT, wait=1.5):
                pass
        finally:
            stop.set()
            heart.join()

    @pytest.mark.parametrize("behind", [1e7, -3600])
    def test_is_presumed_dead_when_it_has_stopped(self, path, behind):
        age(path, behind)
        assert_taken(path, wait=5)


def test_the_default_wait_is_longer_than_the_time_until_a_dead_owner_is_found():
    assert locks.WAIT_SECONDS > locks.STALE_SECONDS + locks.WATCH_SECONDS
    assert locks.STALE_SECONDS > locks.WATCH_SECONDS > 5 * locks.HEARTBEAT_SECONDS


@pytest.mark.parametrize("behind", [0.1, -0.9])
def test_the_first_call_after_a_crash_elsewhere_takes_it(path, dead, quick, monkeypatch, behind):
    """The last heartbeat is of a moment ago, by a clock that may be wrong: we watch from the first
    look on, so that the time without a heartbeat and that of watching pass together.
    """
    monkeypatch.setattr(locks, "STALE_SECONDS", 1.0)
    monkeypatch.setattr(locks, "WATCH_SECONDS", 0.6)
    write(path, {**dead, "host": "node17"})
    age(path, behind)
    begin = time.monotonic()
    assert_taken(path, wait=1.3)
    assert time.monotonic() - begin > 0.8  # not before the time without a heartbeat is over


def test_who_was_replaced_is_told_so_and_leaves_the_new_owners_lock_alone(path, dead, refuses):
    """A laptop that slept past its staleness wakes up and ends: the lock is another's."""
    with OwnerLock(path, WHAT) as lock:
        lock.check()
        write(path, {**dead, "host": "node17", "token": "another"})
        with refuses(StateError, "on node17", "stops writing"):
            lock.check()
    assert json.loads(path.read_text())["token"] == "another"


def test_the_heart_beats_while_held(path, monkeypatch):
    monkeypatch.setattr(locks, "HEARTBEAT_SECONDS", 0.01)
    with OwnerLock(path, WHAT):
        age(path, 1000)
        end = time.monotonic() + 10
        while time.time() - path.stat().st_mtime > 900:
            assert time.monotonic() < end, "no heartbeat"
            time.sleep(0.01)
    assert left_over(path) == []


@pytest.mark.parametrize("content", ["", "{", "[]", '"text"', "\x00\x01", "[" * 100_000])
def test_an_unreadable_lock_is_held_until_watched(path, refuses, content, quick, monkeypatch):
    """A power cut leaves an empty lock, which has no heartbeat."""
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert_refused(path, refuses, "process ? on ?")
    monkeypatch.setattr(locks, "WATCH_SECONDS", 0.1)
    assert_taken(path, wait=5)


def test_a_folder_in_the_place_of_a_lock_is_refused(path, refuses):
    path.mkdir(parents=True)
    assert_refused(path, refuses, f"The lock {path} is a folder")


def test_a_lock_released_between_two_looks_is_taken_even_without_waiting(path, dead, monkeypatch):
    write(path, {**dead, "host": "node17"})
    lock = OwnerLock(path, WHAT, wait=0)
    look = lock._is_alive

    def released_after_the_look(place, owner):
        alive = look(place, owner)
        path.unlink(missing_ok=True)
        return alive

    monkeypatch.setattr(lock, "_is_alive", released_after_the_look)
    with lock:
        assert json.loads(path.read_text())["pid"] == os.getpid()


class TestTakeOver:
    """Interleavings of two processes that find the same dead owner, one step at a time."""

    def test_the_second_does_not_replace_who_came_first(self, path, dead, monkeypatch, refuses):
        write(path, dead)
        first, second = OwnerLock(path, WHAT, wait=0), OwnerLock(path, WHAT, wait=0)
        look = second._is_alive

        def first_takes_over_after_the_look(place, owner):
            alive = look(place, owner)
            if not alive:
                first.__enter__()
            return alive

        monkeypatch.setattr(second, "_is_alive", first_takes_over_after_the_look)
        with refuses(StateError, f"process {os.getpid()}"), second:
            pass
        assert json.loads(path.read_text())["token"] == first.owner["token"]
        first.__exit__()
        assert left_over(path) == []

    def test_while_another_is_taking_over_nobody_else_does(self, path, dead, refuses):
        write(path, dead)
        write(path.with_name(f"train.lock.takeover-{dead['token']}"), OwnerLock(path, WHAT).owner)
        assert_refused(path, refuses, WHAT)
        assert json.loads(path.read_text()) == dead


@pytest.mark.parametrize("links", ["links", "no links"])
def test_of_processes_racing_for_a_lock_exactly_one_wins(start_python, tmp_path, dead, links):
    """Without an owner, with a dead one, and with a dead one and the dead claim of another."""
    rounds = 90
    racers = [start_python(RACE, links) for _ in range(3)]
    results = []
    for number in range(rounds):
        path = tmp_path / str(number) / "train.lock"
        path.parent.mkdir()
        if number % 3 > 0:
            write(path, dead)
        if number % 3 == 2:
            claim = path.with_name(f"train.lock.takeover-{dead['token']}")
            write(claim, {**dead, "token": "1" * 32})
        start = time.monotonic() + 0.002
        for racer in racers:
            racer.stdin.write(f"{path} {start}\n")
            racer.stdin.flush()
        results.append(sorted(racer.stdout.readline() for racer in racers))
        assert json.loads(path.read_text())["pid"] in [racer.pid for racer in racers]
        for racer in racers:
            racer.stdin.write("\n")
            racer.stdin.flush()
        assert [racer.stdout.readline() for racer in racers] == ["done\n"] * 3
        assert left_over(path) == []
    assert results == [["lost\n", "lost\n", "won\n"]] * rounds


def test_the_waiting_time_comes_from_the_environment(path, holder, monkeypatch, refuses):
    monkeypatch.setenv("CALGRID_LOCK_WAIT", "0")
    with refuses(StateError, f"process {holder.pid}"), OwnerLock(path, WHAT):
        pass
    monkeypatch.delenv("CALGRID_LOCK_WAIT")
    assert OwnerLock(path, WHAT).wait == locks.WAIT_SECONDS
    monkeypatch.setenv("CALGRID_LOCK_WAIT", "soon")
    with refuses(ConfigError, "CALGRID_LOCK_WAIT must be a number of seconds, got 'soon'"):
        OwnerLock(path, WHAT)
