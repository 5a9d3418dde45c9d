"""``make same-plans`` tells other code from other options."""

import pytest
from benchmarks import same_plans

JOBS = {"runs/a/train-0123456789": '{"alpha": 0.1, "data": "0123456789abcdef"}'}
CHANGED = {
    "nothing": (JOBS, 0, "1 jobs, the same"),
    "code": (
        {"runs/a/train-1123456789": '{"alpha": 0.1, "data": "1123456789abcdef"}'},
        1,
        "1 other identities, 0 of other options",
    ),
    "an option": (
        {"runs/a/train-1123456789": '{"alpha": 0.2, "data": "0123456789abcdef"}'},
        1,
        "1 other identities, 2 of other options",
    ),
    "a job more": (
        {**JOBS, "runs/b/train-0123456788": "{}"},
        1,
        "1 other identities, 1 of other options",
    ),
}


@pytest.mark.parametrize("change", CHANGED)
def test_it_says_what_differs(change, monkeypatch, tmp_path, capsys):
    jobs, code, said = CHANGED[change]
    of = {same_plans.HERE: {"a.yaml": jobs}, tmp_path: {"a.yaml": JOBS}}
    monkeypatch.setattr(same_plans, "plans_of", of.get)
    assert same_plans.main(tmp_path) == code
    assert said in capsys.readouterr().out
