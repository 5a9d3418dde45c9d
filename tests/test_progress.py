"""Progress: lines in a log at intervals, a bar in a terminal, the time left."""

import io
import sys

import pytest

from calgrid import progress
from calgrid.progress import Progress, log


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves when told to."""

    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def lines(capsys):
    return capsys.readouterr().err.splitlines()


def test_messages_go_to_standard_error(capsys):
    log("something happened")
    captured = capsys.readouterr()
    assert captured.err == "something happened\n"
    assert captured.out == ""


def test_a_log_gets_the_first_step_then_lines_at_intervals_then_the_last(clock, capsys):
    with Progress("train", 40, "epoch") as bar:
        for _ in range(40):
            clock.now += 1.0
            bar.advance()
    shown = [line.split(",")[0].removeprefix("train: epoch ") for line in lines(capsys)]
    assert shown == ["1/40", "11/40", "21/40", "31/40", "40/40"]


def test_lines_show_numbers_and_the_time_left(clock, capsys):
    with Progress("train", 100, "epoch") as bar:
        clock.now = 60.0
        bar.advance(loss=0.123456, accuracy=0.5)
    assert lines(capsys) == ["train: epoch 1/100, loss 0.1235, accuracy 0.5, 1:39:00 left"]


def test_steps_of_an_interrupted_process_do_not_count_for_the_time_left(clock, capsys):
    with Progress("train", 100, done=90) as bar:
        clock.now = 10.0
        bar.advance()
    assert lines(capsys) == ["train: step 91/100, 1:30 left"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0:00"),
        (59.6, "1:00"),
        (61, "1:01"),
        (3599, "59:59"),
        (3600, "1:00:00"),
        (86400, "24:00:00"),
    ],
)
def test_durations(seconds, text):
    assert progress.duration(seconds) == text


def test_a_terminal_gets_a_bar_and_no_lines(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress("train", 4, "epoch", done=1) as bar:
        bar.advance(loss=0.5)
    assert bar.done == 2
    assert "train" in terminal.getvalue()
    assert "left" not in terminal.getvalue()
    assert terminal.getvalue().endswith("\r")  # the bar is cleared away


def test_an_error_inside_passes_through(capsys):
    with pytest.raises(ValueError, match="inside"), Progress("train", 2):
        raise ValueError("inside")
    assert lines(capsys) == []
