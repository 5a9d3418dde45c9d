"""What all tests share: the repository, a small configuration, real processes, error messages."""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.workflow.dag import finished_grid

from calgrid.components import plugins
from calgrid.plan.plan import Plan
from calgrid.storage.publish import Call, replace_files
from calgrid.storage.records import MADE_FROM, listing
from calgrid.study.study import Study

HOME = Path(__file__).parents[1]
#: what takes minutes: begun first, so that the many short tests fill what is left
LONG = ("tests/slurm/", "tests/workflow/test_damage", "tests/report/", "tests/workflow/")
#: files whose tests run in one process, as they share studies that are slow to make
TOGETHER = re.compile(
    r"tests/report/test_(browser|figures(_(of_papers|ranks|smart))?|html|pure|results|tables)\.py"
)


def later_stages(study):
    """Write small tables, figures and a report of an aggregated study, with their records."""
    for stage, output in (("tables", "tables"), ("figures", "figures"), ("report", "report.html")):

        def produce(work, output=output):
            path = work / output if Path(output).suffix else work / output / "index.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text("[]")
            return {}

        call = Call({}, study / f".calgrid/{stage}-{'e' * 10}.json")
        replace_files(call, [output], produce, {study: listing(study, MADE_FROM[stage])})


def pytest_ignore_collect(collection_path, config):
    """Files without a test of the marks that are asked for are not imported: ``-m "a or b"``."""
    marks = config.option.markexpr.split(" or ")
    if collection_path.suffix != ".py" or not all(map(str.isidentifier, marks)):
        return None
    text = collection_path.read_text()
    return None if any(f"mark.{mark}" in text for mark in marks) else True


def pytest_collection_modifyitems(items):
    def rank(item):
        return next(
            (number for number, start in enumerate(LONG) if item.nodeid.startswith(start)),
            len(LONG),
        )

    items.sort(key=rank)


def pytest_xdist_make_scheduler(config, log):
    """A file's tests run in one process, as they share what is slow to make; so do some files'."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return "shared" if TOGETHER.match(nodeid) else super()._split_scope(nodeid)

    return Scheduling(config, log)


@pytest.fixture(autouse=True, scope="session")
def no_waits():
    """No test could see whether a file survives a power cut, or needs the commit of this checkout:
    a study of two runs waited 60 times for the disk, and called git nine times.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        patch.setenv("CALGRID_COMMIT", "")
        yield


@pytest.fixture(autouse=True)
def no_inherited_settings(monkeypatch):
    """A workflow that runs these tests must not hand its own settings on to them."""
    for name in ("CALGRID_PLANNED_AT", "CALGRID_LOCK_WAIT", "CALGRID_PLUGINS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def without_plugins():
    """Other tests do not see the plugins of a test."""
    yield
    for name in ("CALGRID_PLUGINS", "CALGRID_PLUGINS_COPY"):
        os.environ.pop(name, None)
    plugins.use(())
    plugins.forget()


@pytest.fixture(scope="session")
def home():
    """Root of the repository: the folder of the workflow."""
    return HOME


@pytest.fixture(scope="session")
def finished_once(tmp_path_factory):
    """A finished small grid, run once for all test processes together; never changed."""
    folder = tmp_path_factory.getbasetemp()
    return finished_grid(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder)


@pytest.fixture
def make_config():
    """Smallest configuration with one grid; keywords replace its keys, ``grid`` the grid's."""

    def make(grid=None, **changes):
        block = {"protocol": "digits", "datasets": ["digits"], "backbones": ["resnet8"]}
        block |= {"methods": ["ce", "mbls"], "seeds": [1], **(grid or {})}
        return {"study": "small", "grids": [block], **changes}

    return make


def environment(source, **changes):
    return {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", **changes}


@pytest.fixture(scope="session")
def run_python(home):
    """Run a program in a new interpreter and return what it printed; it must end well."""

    def run(program, *arguments, source=home / "src", **changes):
        command = [sys.executable, "-c", program, *map(str, arguments)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=environment(source, **changes),
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def start_python(home):
    """Start a program in a new interpreter with pipes; what still runs is killed after the test."""
    started = []

    def start(program, *arguments, **changes):
        process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(home / "src", **changes),
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def refuses():
    """Context in which an error of the given class must be raised, in one sentence that holds all
    the given parts; in a part, `` ... `` stands for words that are left out.
    """

    @contextlib.contextmanager
    def check(kind, *parts):
        with pytest.raises(kind) as caught:
            yield
        message = str(caught.value)
        assert is_one_sentence(message), message
        for part in parts:
            assert re.search(".*".join(map(re.escape, part.split(" ... "))), message), message

    return check


def flip(path, bit=None):
    """Change one bit of a file, by default in its middle."""
    content = bytearray(path.read_bytes())
    bit = 8 * (len(content) // 2) if bit is None else bit
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def is_one_sentence(message):
    return "\n" not in message and message[-1] in ".?" and not re.search(r"[.?!] [A-Z]", message)


@pytest.fixture
def study(make_config, home):
    """A study of some grids, each given by its changes of the smallest one, and of other keys."""

    def make(*grids, **changes):
        blocks = [make_config(grid)["grids"][0] for grid in grids or [{}]]
        return Study({"study": "small", "grids": blocks, **changes}, home)

    return make


@pytest.fixture
def plan(study):
    return lambda *grids, **changes: Plan(study(*grids, **changes))
