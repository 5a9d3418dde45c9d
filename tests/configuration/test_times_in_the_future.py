"""Times in the future are clamped, all to the same moment; nothing else is touched."""

import os
import time

from calgrid.configuration.repair import clamp_future_mtimes


def file(folder, name, ahead):
    path = folder / name
    path.write_text(name)
    os.utime(path, (time.time() + ahead,) * 2)
    return path


def test_only_times_in_the_future_are_set_and_all_alike(tmp_path):
    ahead = [file(tmp_path, name, hours * 3600) for name, hours in (("a", 1), ("b", 2))]
    past = [file(tmp_path, name, seconds) for name, seconds in (("c", -3600), ("d", 5))]
    before = [path.stat().st_mtime_ns for path in past]
    begin = time.time()
    assert clamp_future_mtimes([*ahead, *past, tmp_path / "not there"], begin) == [str(path) for path in ahead]
    assert clamp_future_mtimes(ahead, time.time()) == []
    times = {path.stat().st_mtime for path in ahead}
    assert len(times) == 1
    assert begin - 1 <= times.pop() <= time.time() + 1
    assert [path.stat().st_mtime_ns for path in past] == before
    assert [path.read_text() for path in ahead] == ["a", "b"]
