"""``calgrid new``: what it writes works as written, and it overwrites nothing."""

import os
import re
import runpy
import subprocess
import sys

import pytest

from calgrid.cli.commands import NEW_KINDS
from calgrid.components import plugins
from calgrid.components.registry import KINDS

pytestmark = pytest.mark.usefixtures("without_plugins")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "new_ones"


@pytest.mark.slow
def test_every_kind_is_written_listed_and_passes_its_test(calgrid, tmp_path, monkeypatch):
    folder = tmp_path / "all_kinds"  # its package stays imported
    assert set(NEW_KINDS) == set(KINDS)
    for kind in NEW_KINDS:
        done = calgrid("new", kind, f"own_{kind}", "--into", folder)
        assert done.out.startswith(f"wrote {folder / KINDS[kind] / f'own_{kind}.py'}\nwrote ")
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder / "tests"],
        capture_output=True,
        text=True,
        cwd=folder.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert tested.stdout.splitlines()[-1].startswith(f"{len(NEW_KINDS)} passed"), (
        tested.stdout + tested.stderr
    )
    monkeypatch.setenv("CALGRID_PLUGINS", str(folder))
    plugins.forget()
    for kind in NEW_KINDS:
        listed = calgrid("list", KINDS[kind])
        assert f" (plugin: all_kinds/{KINDS[kind]}/own_{kind}.py)\n" in listed.out
        said = calgrid("list", KINDS[kind], f"own_{kind}")
        assert f"\n  plugin: all_kinds/{KINDS[kind]}/own_{kind}.py\n" in said.out
        assert listed.err == ""


def test_the_test_of_an_edited_component_says_what_to_replace(calgrid, tmp_path):
    folder = tmp_path / "edited_ones"  # its package stays imported
    calgrid("new", "metric", "edited", "--into", folder)
    file = folder / "metrics" / "edited.py"
    file.write_text(re.sub(r"    return .*", "    return 0.5", file.read_text(), flags=re.DOTALL))
    written = runpy.run_path(str(folder / "tests" / "test_metric_edited.py"))
    (check,) = (each for name, each in written.items() if name.startswith("test_"))
    with pytest.raises(AssertionError, match="replace this number: it is that of the template"):
        check()


def test_a_class_that_the_file_needs_is_not_hidden(succeeds, folder):
    succeeds("new", "loss", "loss", "--into", folder)
    assert "class MyLoss(Loss):" in (folder / "losses" / "loss.py").read_text()


def test_nothing_is_overwritten_and_no_name_taken(calgrid, fails, folder):
    calgrid("new", "loss", "mine", "--into", folder)
    file = folder / "losses" / "mine.py"
    file.write_text("kept")
    exists = ["calgrid new: ", "losses/mine.py exists already"]
    fails("new", "loss", "mine", "--into", folder, parts=exists)
    assert file.read_text() == "kept"
    taken = "'mixup' is already the procedure of calgrid/procedures/mixup.py"
    fails("new", "loss", "mixup", "--into", folder, parts=[taken])
    fails("new", "loss", "My-Loss", "--into", folder, parts=["'My-Loss' is not a valid identifier"])
    other = folder.parent / "a-b"
    no_package = ["--into: 'a-b' is no name of a Python package"]
    fails("new", "loss", "mine", "--into", other, parts=no_package)
    assert {path.name for path in folder.rglob("*.py")} == {"mine.py", "test_loss_mine.py"}
    assert not (folder.parent / "a-b").exists()


def test_a_broken_file_is_named_beside_the_list_and_by_check(
    calgrid, folder, monkeypatch, make_config, tmp_path
):
    (folder / "losses").mkdir(parents=True)
    (folder / "losses" / "mine.py").write_text("class (")
    monkeypatch.setenv("CALGRID_PLUGINS", str(folder))
    plugins.forget()
    said = "new_ones/losses/mine.py, line 1, is not valid Python (invalid syntax).\n"
    for listed in ("losses", "methods"):
        done = calgrid("list", listed)
        assert (done.code, done.err) == (0, f"Warning: {said}")
        assert "\nmbls " in done.out
    path = tmp_path / "config.yaml"
    path.write_text(str(make_config()))
    done = calgrid("check", path)
    assert (done.code, done.err) == (0, f"Warning: {said}")
    path.write_text(str(make_config({"methods": ["mine"]})))
    done = calgrid("check", path)
    assert (done.code, done.err) == (2, f"calgrid check: {said}")
