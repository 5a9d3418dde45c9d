"""What each calibrator in the registry must do, whatever its method."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from calgrid.calibrators import build_calibrator, load_calibrator
from calgrid.calibrators.base import SoftmaxCalibrator
from calgrid.components.registry import describe, descriptions, load
from calgrid.errors import CalgridError, DataError, StateError

CALIBRATORS = sorted(descriptions("calibrator"))
STOCHASTIC = [id for id in CALIBRATORS if describe("calibrator", id).is_stochastic]
NEEDS = {id: describe("calibrator", id).info["needs"] for id in CALIBRATORS}
NEEDS_FEATURES = [id for id in CALIBRATORS if "features" in NEEDS[id]]
#: one of each family, whose odd cases are always tested; those of the others are marked slow
FAMILIES = (
    *("ts", "cts", "ets", "dirichlet", "hb", "irm"),
    *("spline", "smart", "gc_ts", "procal_dr", "fc"),
)
MATRIX = [pytest.param(id, marks=() if id in FAMILIES else pytest.mark.slow) for id in CALIBRATORS]
#: these compute logits from features and head, and refuse validation logits that do not come from
#: them
NEEDS_HEAD = [id for id in CALIBRATORS if "head" in NEEDS[id]]
N_CLASSES = 5
#: few steps of what takes long, where any fit will do
SHORT = {
    "pts_paper": {"steps": 200, "learning_rate": 1e-2, "batch_size": 100},
    "pts": {"max_epochs": 20},
    "smart": {"max_epochs": 20},
    "gc_ts": {"n_partitions": 3},
    "gc_ets": {"n_partitions": 3},
}
#: a calibrator may move the mean top probability by this much on 3,000 calibrated samples: three
#: standard errors of an accuracy are 0.027; the published bandwidth of kernel smooths much
IDENTITY_TOLERANCE = {"kernel": 0.1}


@pytest.fixture(params=CALIBRATORS)
def id(request):
    return request.param


#: calibrators fitted to the problem of all tests
FITTED = {}


def short_fit(id, problem):
    return problem.fit(id, **SHORT.get(id, {}))


def fit_once(id, problem):
    if id not in FITTED:
        FITTED[id] = short_fit(id, problem)
    return FITTED[id]


@pytest.fixture
def fitted(id, problem):
    return fit_once(id, problem)


def assert_distributions(id, probabilities, logits):
    """And the top label stays where that is promised: rounding may make it equal to another one."""
    assert probabilities.shape == logits.shape
    assert probabilities.dtype == np.float64
    assert np.isfinite(probabilities).all()
    assert probabilities.min() >= 0.0
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=0, atol=1e-9)
    if describe("calibrator", id).info["keeps_argmax"]:
        top = probabilities[np.arange(len(logits)), logits.argmax(axis=1)]
        np.testing.assert_array_equal(top, probabilities.max(axis=1))


def test_predictions_are_those_of_single_rows_up_to_a_constant(id, fitted, held_out):
    output = fitted.predict_output(held_out.logits, held_out.features)
    assert_distributions(id, output.probs, held_out.logits)
    assert (output.logs is not None) == isinstance(fitted, SoftmaxCalibrator)
    np.testing.assert_allclose(output.log_probs, np.log(output.probs), rtol=0, atol=1e-12)
    order = np.random.default_rng(1).permutation(len(held_out.labels))
    np.testing.assert_allclose(
        held_out.rows(order).predict(fitted), output.probs[order], rtol=1e-9, atol=1e-15
    )
    shifted = held_out.replace(logits=held_out.logits + order[:, None])
    np.testing.assert_allclose(shifted.predict(fitted), output.probs, rtol=1e-6, atol=1e-12)


@settings(deadline=None, max_examples=15)
@given(data=st.data())
@pytest.mark.parametrize("id", MATRIX)
def test_any_logits_give_distributions(id, problem, data):
    n_samples = data.draw(st.integers(1, 6))
    values = st.one_of(st.floats(-1e4, 1e4), st.just(-np.inf), st.sampled_from([0.0, 1e4, -1e4]))
    logits = data.draw(arrays(np.float64, (n_samples, N_CLASSES), elements=values))
    logits[:, 0] = np.where(np.isfinite(logits).any(axis=1), logits[:, 0], 0.0)
    if (logits >= 0).all():  # rows that are probabilities are refused
        logits -= logits.max() + 1.0
    probabilities = fit_once(id, problem).predict_proba(logits, problem.features[:n_samples])
    assert_distributions(id, probabilities, logits)


@pytest.mark.parametrize("factor", [1e-4, 1e4])
@pytest.mark.parametrize("id", [id for id in CALIBRATORS if load("calibrator", id).scale_free])
def test_the_unit_of_the_logits_does_not_matter(id, problem, fitted, held_out, factor):
    """But for trained networks, nothing but rounding differs; temperatures have the given unit."""
    again = short_fit(id, problem.replace(logits=factor * problem.logits))
    scaled = held_out.replace(logits=factor * held_out.logits)
    np.testing.assert_allclose(
        scaled.predict(again), held_out.predict(fitted), rtol=1e-7, atol=1e-9
    )
    for name in ("temperature", "temperature_mean"):
        if name in fitted.fit_history:
            assert again.fit_history[name] == pytest.approx(
                factor * fitted.fit_history[name], rel=1e-7
            )
    assert len(again.fit_history["warnings"]) == len(fitted.fit_history["warnings"])


@pytest.mark.parametrize("factor", [1e-2, 1e4])
@pytest.mark.parametrize("id", ["ets", "hts", "cts", "ts_ece_grid"])
def test_limits_of_temperatures_follow_the_unit_of_the_logits(id, problem, factor):
    """These maps depend on the scale otherwise: by the plain softmax, its entropy, or a grid."""
    plain, scaled = problem.fit(id), problem.replace(logits=factor * problem.logits)
    again = scaled.fit(id)
    assert len(again.fit_history["warnings"]) == len(plain.fit_history["warnings"])
    if id != "hts":
        name = "start_temperature" if id == "cts" else "temperature"
        assert again.fit_history[name] == pytest.approx(factor * plain.fit_history[name])
    if id in ("cts", "ts_ece_grid"):
        np.testing.assert_allclose(scaled.predict(again), problem.predict(plain), rtol=1e-7)
    if id == "hts":
        assert again.fit_history["loss"] <= problem.fit("ts").fit_history["loss"][-1] + 1e-9


@pytest.mark.parametrize("id", MATRIX)
def test_calibrated_data_stay_as_they_are(id, make):
    calibrated = make(3000, temperature=1.0, seed=3)
    before = calibrated.predict(calibrated.fit("none"))
    options = SHORT[id] if id == "pts_paper" else {}
    after = calibrated.predict(calibrated.fit(id, **options))
    rows, top = np.arange(len(before)), before.argmax(axis=1)
    assert np.abs(after[rows, top] - before[rows, top]).mean() < IDENTITY_TOLERANCE.get(id, 0.03)


@pytest.mark.parametrize(
    "case",
    [
        *("all right", "all wrong", "absent class", "one class", "ties", "equal", "1e4", "-inf"),
        *("one row", "two rows"),
    ],
)
@pytest.mark.parametrize("id", MATRIX)
def test_degenerate_data_give_distributions_or_contradict_the_head(id, problem, held_out, case):
    data = degenerate(problem.rows(slice(200)), case)
    if case == "-inf" and id in NEEDS_HEAD:
        with pytest.raises(DataError, match="do not give these logits"):
            data.fit(id)
        return
    calibrator = short_fit(id, data)
    assert_distributions(id, held_out.predict(calibrator), held_out.logits)
    numbers = {**calibrator.fit_history, "warnings": []}
    assert all(np.isfinite(value).all() for value in numbers.values())


def degenerate(problem, case):
    """Change labels, or the head with its logits; only "-inf" needs logits that no head gives."""
    if case in ("one row", "two rows"):
        return problem.rows(slice(1 if case == "one row" else 2))
    labels, rows = problem.labels, np.arange(len(problem.labels))
    top, bottom = problem.logits.argmax(axis=1), problem.logits.argmin(axis=1)
    others = {"all right": top, "all wrong": bottom, "one class": np.full_like(labels, 1)}
    others["absent class"] = np.where(labels == 2, 3, labels)
    if case in others:
        return problem.replace(labels=others[case])
    if case == "-inf":
        logits = problem.logits.copy()
        logits[rows, bottom] = -np.inf
        return problem.replace(logits, np.where(labels == bottom, top, labels))
    weight, bias = (part.copy() for part in problem.head)
    if case == "ties":
        weight[1], bias[1] = weight[0], bias[0]
    elif case == "equal":
        weight[:], bias[:] = 0.0, 1.0
    elif case == "1e4":
        weight, bias = (part * 1e4 / np.abs(problem.logits).max() for part in (weight, bias))
    return problem.replace(problem.features @ weight.T + bias, head=(weight, bias))


def test_impossible_classes_get_nothing_and_certainty_is_allowed(id, fitted, problem):
    """Except where the source or the documentation gives them a probability."""
    logits = np.full((3, N_CLASSES), -np.inf)
    logits[np.arange(3), [0, 2, 4]] = [1.0, -3.0, 1e4]
    output = fitted.predict_output(logits, problem.features[:3])
    assert_distributions(id, output.probs, logits)
    if not fitted.maps_impossible:
        assert (output.probs[logits == -np.inf] == 0.0).all()
        assert np.isneginf(output.log_probs[logits == -np.inf]).all()


def test_a_second_fit_forgets_the_first_and_has_its_bytes(id, problem, fitted, tmp_path):
    used = short_fit(id, problem.rows(slice(40)))
    used.fit(problem.logits, problem.labels, problem.features, problem.head)
    for name, calibrator in (("a", fitted), ("b", used)):
        calibrator.save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_saved_calibrator_gives_the_same_bits(fitted, held_out, tmp_path):
    path = tmp_path / "folder" / "fitted.safetensors"
    fitted.save(path)
    loaded = load_calibrator(path)
    loaded.save(path.with_name("again"))
    assert path.with_name("again").read_bytes() == path.read_bytes()
    assert sorted(each.name for each in path.parent.iterdir()) == ["again", path.name]
    np.testing.assert_array_equal(held_out.predict(loaded), held_out.predict(fitted))
    assert loaded.fit_seconds is None


@pytest.mark.parametrize("id", STOCHASTIC)
def test_another_seed_gives_another_fit(id, problem, fitted, held_out):
    other = problem.fit(id, seed=1, **SHORT.get(id, {}))
    assert (held_out.predict(other) != held_out.predict(fitted)).any()


@pytest.mark.parametrize(
    "id", [each for each in MATRIX if each.values[0] not in ("dirichlet", "ms", "ms_odir")]
)
def test_a_thousand_classes_and_twenty_samples(id, make):
    """Three calibrators refuse as many classes."""
    few = make(60, n_classes=1000)
    calibrator = short_fit(id, few.rows(slice(20)))
    others = few.rows(slice(20, 60))
    assert_distributions(id, others.predict(calibrator), others.logits)


def test_prediction_and_saving_before_the_fit_are_refused(problem, tmp_path):
    with pytest.raises(StateError, match="'ts' is not fitted; call fit"):
        problem.predict(build_calibrator("ts"))
    with pytest.raises(StateError, match="is not fitted"):
        build_calibrator("ts").save(tmp_path / "x")


def test_refused_input_leaves_the_earlier_fit_as_it_was(problem):
    calibrator = problem.rows(slice(40)).fit("vs")
    before = problem.predict(calibrator)
    with pytest.raises(DataError):
        calibrator.fit(problem.logits, problem.labels + 100)
    np.testing.assert_array_equal(problem.predict(calibrator), before)


@pytest.mark.parametrize("id", NEEDS_FEATURES)
def test_features_are_required_where_needed(id, fitted, problem):
    with pytest.raises(DataError, match="needs features"):
        build_calibrator(id).fit(problem.logits, problem.labels)
    with pytest.raises(DataError, match="width"):
        fitted.predict_proba(problem.logits, problem.features[:, :-1])


def test_no_calibrator_imports_torch_or_scikit_learn(run_python):
    program = (
        "import sys, numpy as np\n"
        "from calgrid.calibrators import build_calibrator\n"
        "z = np.random.default_rng(0).normal(size=(12, 3)); y = z.argmax(1); y[::3] = 0\n"
        f"for id in {[id for id in CALIBRATORS if id not in NEEDS_FEATURES]}:\n"
        f"    build_calibrator(id, **{SHORT}.get(id, {{}})).fit(z, y).predict_proba(z)\n"
        "print(*{'torch', 'sklearn'} & set(sys.modules))\n"
    )
    assert run_python(program).split() == []


@pytest.mark.parametrize("kind", [np.float32, np.int64, np.uint8, torch.float64, torch.bfloat16])
def test_logits_of_any_real_numbers_are_fitted_alike(kind):
    logits, labels = np.random.default_rng(0).integers(0, 9, (50, 3)), np.arange(50) % 3
    plain = logits.astype(np.float64)
    expected = build_calibrator("ts").fit(plain, labels).predict_proba(plain)
    if isinstance(kind, torch.dtype):
        given = torch.tensor(logits, dtype=kind, requires_grad=True)
        labels = torch.tensor(labels)
    else:
        given = logits.astype(kind)
    np.testing.assert_array_equal(
        build_calibrator("ts").fit(given, labels).predict_proba(given), expected
    )


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (np.zeros(3), [0, 0, 0], r"between 0 and 1 like probabilities"),
        (np.zeros((0, 3)), [], "N >= 1"),
        (np.zeros((2, 1)), [0, 0], "K >= 2"),
        (np.zeros((2, 3), dtype=bool), [0, 0], "real numbers, got bool"),
        (np.zeros((2, 3), dtype=object), [0, 0], "real numbers, got object"),
        (
            np.zeros((2, 3)),
            np.array([0, "b"], dtype=object),
            "labels must be integers, got object; give class indices",
        ),
        (np.zeros((3, 3)), [1, 2, 3], "subtract 1, as they seem to count from 1"),
        ([[0.0, np.nan], [0.0, 1.0]], [0, 1], r"row 0 \(counted from 0\) has NaN"),
        ([[0.0, 1.0], [np.inf, 1.0]], [0, 1], r"row 1 \(counted from 0\) has NaN, \+inf"),
        ([[0.0, 1.0], [-np.inf, -np.inf]], [0, 1], "row 1 .* has NaN, .* no finite value"),
        ([[0.0, 1.0], [0.0]], [0, 1], "array of numbers"),
        (np.zeros((2, 3)), [0], r"labels must be \(2,\)"),
        (np.zeros((2, 3)), [0.0, 0.5], "labels must be integers"),
        (np.zeros((2, 3)), [0.0, np.nan], "labels must be integers, got NaN"),
        (np.zeros(3, [("a", "f4"), ("b", "f4")]), [0, 0, 0], r"real numbers, got \[\('a'"),
        (np.zeros((2, 3)), [0, 3], r"labels must lie in \[0, 2\], got 0 to 3"),
        (np.zeros((2, 3)), [-1, 0], "remove unlabelled samples"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(logits, labels, message):
    with pytest.raises(DataError, match=message) as error:
        build_calibrator("ts").fit(logits, labels)
    assert "\n" not in str(error.value)
    assert isinstance(error.value, CalgridError)


def test_numbers_that_are_names_of_classes_are_not_called_unlabelled():
    with pytest.raises(DataError, match="got 2 to 10; give names of classes as text"):
        build_calibrator("ts").fit(np.zeros((3, 3)), [10, 2, 7], class_names=[10, 2, 7])
