"""Slices of a large table: every row in exactly one of them, together with those that it belongs
to.
"""

import pandas as pd
import pytest

from calgrid.storage.slices import Slices, read_slice
from calgrid.storage.tables import to_table

METRICS = [f"metric{number}" for number in range(12)]


def part(run):
    rows = [(run, metric, severity) for metric in METRICS for severity in (0, 1, 2)]
    frame = pd.DataFrame(rows, columns=["run", "metric", "severity"])
    return frame.astype({"metric": "str", "severity": "int8"}).sample(frac=1, random_state=run)


def slices_of(folder, runs, size, groups=("a",)):
    """Slices of all groups, and the rows that went in."""
    with Slices(folder, ["metric", "severity"], size) as slices:
        for run in range(runs):
            for group in groups:
                slices.add(group, to_table(part(run).assign(group=group)), 36 * runs)
        return {group: [read_slice(part) for part in parts] for group, parts in slices.read()}


@pytest.mark.parametrize("size", [10, 50, 100, 10_000])
def test_every_row_is_in_one_slice_with_its_like_in_the_order_in_which_they_came(tmp_path, size):
    found = slices_of(tmp_path / "slices", 5, size)["a"]
    assert 1 <= len(found) <= max(1, round(180 / size))
    assert (len(found) > 1) == (size <= 100)
    homes = {}
    for number, frame in enumerate(found):
        for (metric, severity), rows in frame.groupby(["metric", "severity"], observed=True):
            assert homes.setdefault((metric, severity), number) == number
            assert rows["run"].tolist() == [0, 1, 2, 3, 4]
    assert len(homes) == 36


def test_one_slice_is_the_table_itself(tmp_path):
    (found,) = slices_of(tmp_path / "slices", 3, 10_000)["a"]
    expected = pd.concat([part(run) for run in range(3)], ignore_index=True)
    pd.testing.assert_frame_equal(found.drop(columns="group").astype({"metric": "str"}), expected)
    assert found["metric"].dtype == "category"


def test_groups_come_sorted_and_are_not_mixed(tmp_path):
    found = slices_of(tmp_path / "slices", 2, 20, groups=("b", "a"))
    assert list(found) == ["a", "b"]
    for group, frames in found.items():
        whole = pd.concat([frame.astype({"group": "str", "metric": "str"}) for frame in frames])
        assert set(whole["group"]) == {group}
        assert len(whole) == 72


def test_nothing_is_left_on_disk_and_what_a_killed_process_left_is_not_read(tmp_path):
    folder = tmp_path / "slices"
    folder.mkdir()
    (folder / "0.arrow").write_text("of a process that was killed")
    assert sum(map(len, slices_of(folder, 3, 10)["a"])) == 108
    assert not folder.exists()
    with pytest.raises(RuntimeError), Slices(folder, ["metric"]):
        raise RuntimeError
    assert not folder.exists()
