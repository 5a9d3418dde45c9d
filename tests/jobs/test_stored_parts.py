"""What is stored to save a computation has a key of all that it was computed from."""

import sys
from dataclasses import replace

import numpy as np

from calgrid.calibrators import build_calibrator
from calgrid.jobs.predict import KeptFile
from calgrid.jobs.scoring import Chunk, Scorer, ScoringJob, score_chunk
from calgrid.storage.logits import Logits
from calgrid.storage.publish import Call
from calgrid.training.val_rows import CHOICE, FIT

ENTRY = {
    "name": "dac",
    "id": "dac",
    "options": {"bound": 1},
    "needs": ["logits", "features", "training features"],
    "seeds": [0],
    "fingerprint": "code",
}
SPEC = {
    "checkpoints": ["last"],
    "calibrators": [ENTRY],
    "families": [],
    "some_classes": [],
    "statistics": {"bins": 15},
}
CHUNK = Chunk(0, (0,))


def rows(count, seed):
    rng = np.random.default_rng(seed)
    index, label = np.arange(count, dtype=np.int32), np.arange(count) % 3
    logits = (rng.normal(size=(count, 3)) + 2 * np.eye(3)[label]).astype(np.float32)
    features = rng.normal(size=(count, 4)).astype(np.float32)
    return Logits(index, label, logits, features=features)


def changed(values):
    """The same values but the last, which differs in its last bit."""
    other = values.copy()
    other.flat[-1] = np.nextafter(other.flat[-1], 9) if other.dtype.kind == "f" else 0
    return other


#: what alone is another one -> the rows of val, training images, head, entry and seed of a fit
VAL, TRAIN, HEAD = rows(60, 0), rows(30, 1), (np.ones((3, 4)), np.zeros(3))
FITS = {
    "nothing": (VAL, TRAIN, HEAD, ENTRY, 0),
    "logits": (replace(VAL, logits=changed(VAL.logits)), TRAIN, HEAD, ENTRY, 0),
    "labels": (replace(VAL, label=changed(VAL.label)), TRAIN, HEAD, ENTRY, 0),
    "features": (replace(VAL, features=VAL.features + 1), TRAIN, HEAD, ENTRY, 0),
    "training features": (VAL, replace(TRAIN, features=TRAIN.features + 1), HEAD, ENTRY, 0),
    "weight": (VAL, TRAIN, (changed(HEAD[0]), HEAD[1]), ENTRY, 0),
    "bias": (VAL, TRAIN, (HEAD[0], changed(HEAD[1])), ENTRY, 0),
    "no head": (VAL, TRAIN, None, ENTRY, 0),
    "seed": (VAL, TRAIN, HEAD, ENTRY, 1),
    "options": (VAL, TRAIN, HEAD, {**ENTRY, "options": {"bound": 2}}, 0),
    "code": (VAL, TRAIN, HEAD, {**ENTRY, "fingerprint": "other"}, 0),
}


def test_a_fit_is_taken_only_where_each_input_is_the_same(tmp_path, monkeypatch):
    fitted = []

    def fit(scorer, id, seed, options, rows):
        fitted.append(id)
        return build_calibrator("ts").fit(rows.logits, rows.label)

    monkeypatch.setattr(Scorer, "_fit", fit)
    job = ScoringJob(Call(SPEC, tmp_path / "calibrate"), tmp_path, tmp_path, "")
    for name in [*FITS, *FITS]:
        val, train, head, entry, seed = FITS[name]
        scorer = Scorer(job, CHUNK)
        vars(scorer).update(_val={FIT: val, CHOICE: val}, train=train, head=head)
        scorer.fitted(entry, seed)
    assert len(fitted) == len(FITS)


def test_a_result_of_an_interrupted_attempt_is_taken_only_of_the_same_job(tmp_path, monkeypatch):
    scored = []
    monkeypatch.setattr(sys.modules[Scorer.__module__], "KEPT_SECONDS", -1)
    monkeypatch.setattr(Scorer, "score", lambda scorer, number: scored.append(number) or [])
    spec = {**SPEC, "calibrators": [ENTRY, ENTRY], "families": ["a", "b"]}
    call = Call(spec, tmp_path / "calibrate")
    one = ScoringJob(call, tmp_path, tmp_path, "inputs")
    jobs = [
        (one, CHUNK),
        (replace(one, inputs="others"), CHUNK),
        (replace(one, call=replace(call, spec={**spec, "statistics": {"bins": 14}})), CHUNK),
        (one, CHUNK._replace(calibrators=(1,))),
        (one, CHUNK._replace(family=1)),
        (one, CHUNK._replace(group=1)),
    ]
    for job, chunk in [*jobs, *jobs]:
        score_chunk(job, chunk)
    assert len(scored) == len(jobs)


def test_a_block_of_predictions_is_taken_only_of_the_same_file_and_inputs(tmp_path, monkeypatch):
    computed = []
    monkeypatch.setattr(sys.modules[KeptFile.__module__], "KEPT_SECONDS", -1)
    inputs = {"fingerprint": "f", "device": "cpu", "inputs": ["model", "data"]}
    files = [
        ("a", inputs, 0),
        ("b", inputs, 0),
        ("a", inputs, 1),
        *(("a", {**inputs, key: "other"}, 0) for key in inputs),
    ]
    for name, given, number in files:
        KeptFile(tmp_path, name, given).block(
            number, lambda: computed.append(0) or {"logits": np.zeros(2)}
        )
        assert KeptFile(tmp_path, name, given).kept(number) is not None
    assert len(computed) == len(files)
