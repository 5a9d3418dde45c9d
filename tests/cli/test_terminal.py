"""Lines of commands in a terminal."""

from calgrid.cli.terminal import wrapped


def test_a_long_line_is_wrapped_below_its_second_cell_and_a_short_one_stays():
    assert wrapped("ls    Label smoothing.", 80) == "ls    Label smoothing."
    assert wrapped("ls    Label smoothing of targets.", 22) == (
        "ls    Label smoothing\n      of targets."
    )
