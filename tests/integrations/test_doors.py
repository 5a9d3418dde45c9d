"""Bad rows at each door of a fitted calibrator: an error or NaN, never a plausible probability."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from tests.integrations.test_modules import BAD, CLASSES, GOOD, drawn, fitted, with_value
from torch import nn

from calgrid import CalibratedEstimator, CalibratedModule
from calgrid.calibrators import build_calibrator
from calgrid.cli import main
from calgrid.errors import DataError

#: calibrators whose maps have other operations than those of the others
ONE_OF_EACH_MAP = (
    *("ts", "ts_ece_grid", "ts_mix", "ets", "hts", "cts", "smart", "pts_paper", "logit_clipping"),
    *("vs", "svs", "dirichlet", "spline", "scaling_binning", "hb_ova", "iso_ova", "beta_ova"),
    *("smoothing_spline_ova", "imax", "irm", "ivap_ova", "kernel"),
)
EXAMPLE = torch.tensor(drawn(1, 9)[0])
#: a good row before and after bad ones
BATCH = np.vstack([GOOD, BAD, GOOD])


def assert_only_good_rows(found, calibrator, batch=BATCH, good=GOOD):
    assert np.isnan(found[1:-1]).all()
    expected = calibrator.predict_proba(good[None])
    np.testing.assert_allclose(found[[0, -1]], np.repeat(expected, 2, axis=0), atol=1e-6)


def onnx_session(calibrator, folder):
    for module in ("onnx", "onnxscript"):
        pytest.importorskip(module, reason="needs the extra onnx")
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    calibrator.save(folder / "fitted.safetensors")
    path = folder / "model.onnx"
    assert main(["export", str(folder / "fitted.safetensors"), "--onnx", str(path)]) == 0
    return runtime.InferenceSession(path)


@pytest.mark.slow
@pytest.mark.parametrize("id", ONE_OF_EACH_MAP)
def test_bad_rows_in_onnx_runtime_are_nan_and_the_others_those_of_numpy(id, tmp_path):
    calibrator = fitted(id)
    session = onnx_session(calibrator, tmp_path)
    (found,) = session.run(None, {"logits": BATCH.astype(np.float32)})
    assert_only_good_rows(found, calibrator)
    logits = drawn(1, 50)[0].astype(np.float32)
    (found,) = session.run(None, {"logits": logits})
    np.testing.assert_allclose(found, calibrator.predict_proba(logits), atol=1e-6)


@pytest.mark.slow
def test_a_map_that_onnx_runtime_cannot_compute_is_not_written(tmp_path, capsys):
    fitted("consistency").save(tmp_path / "fitted.safetensors")
    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    path = tmp_path / "model.onnx"
    assert main(["export", str(tmp_path / "fitted.safetensors"), "--onnx", str(path)]) != 0
    assert "'consistency' cannot be written as ONNX, because" in capsys.readouterr().err
    assert not path.exists()


def test_a_nan_logit_does_not_become_a_class_in_onnx_runtime(tmp_path):
    # vs gave 0.36 to another class, because ONNX Runtime passes NaN over in a maximum
    session = onnx_session(fitted("vs"), tmp_path)
    row = GOOD.astype(np.float32)
    row[-1] = np.nan
    (found,) = session.run(None, {"logits": row[None]})
    assert np.isnan(found).all()
    (none,) = session.run(None, {"logits": np.empty((0, CLASSES), np.float32)})
    assert none.shape == (0, CLASSES)


def test_numpy_refuses_bad_rows(refuses):
    calibrator = fitted("ts")
    for row in BAD:
        with refuses(DataError, "row 1 (counted from 0) has NaN, +inf or no finite value"):
            calibrator.predict_proba(np.vstack([GOOD, row]))
    with refuses(DataError, "logits must be (N, K)"):
        calibrator.predict_proba(np.empty((0, CLASSES)))
    with refuses(DataError, "11 classes, but the calibrator was fitted on 12"):
        calibrator.predict_proba(GOOD[None, 1:])
    with refuses(DataError, "shape (12,)", "one row as logits[None, :]"):
        calibrator.predict_proba(GOOD)


@pytest.mark.parametrize("id", ["ts", "vs", "iso_ova", "smart"])
def test_low_precision_and_huge_logits_give_what_numpy_gives(id):
    calibrator = fitted(id)
    module = calibrator.module()
    for dtype in (torch.float16, torch.bfloat16):
        values = torch.tensor(GOOD[None]).to(dtype)
        expected = calibrator.predict_proba(values.double())
        assert module(values).dtype == dtype
        np.testing.assert_allclose(module(values).double(), expected, atol=1e-2)
        np.testing.assert_allclose(module(values.double()), expected, atol=1e-6)
    huge = np.vstack([1e30 * GOOD, 1e300 * GOOD, -1e300 * GOOD])
    expected = calibrator.predict_proba(huge)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(module(torch.tensor(huge)), expected, atol=1e-6)


@pytest.mark.parametrize("columns", [1, 6, 11, 24])
def test_another_number_of_classes_is_an_error_in_each_module(columns):
    module = fitted("ts").module()
    traced = torch.jit.trace(module, EXAMPLE, check_trace=False)
    values = torch.zeros(4, columns, dtype=torch.float64)
    with pytest.raises(ValueError, match="another number of classes"):
        module(values)
    with pytest.raises(RuntimeError, match="invalid for input"):
        traced(values)


def test_numbers_that_are_no_probabilities_are_nan_where_the_fit_was_of_probabilities():
    logits, labels = drawn(0, 400)
    shares = torch.tensor(logits).softmax(1)
    calibrator = build_calibrator("ts").fit(shares, labels, kind="probabilities")
    good = torch.tensor(GOOD).softmax(0).numpy()
    negative = good + np.eye(CLASSES)[0] * 0.2 - np.eye(CLASSES)[1] * 0.2
    bad = np.vstack([with_value(np.nan, good), good[None] / 2, negative[None], GOOD[None]])
    batch = np.vstack([good, bad, good])
    module = calibrator.module()
    assert_only_good_rows(module(torch.tensor(batch)).numpy(), calibrator, batch, good)
    is_first = (labels == 0).astype(int)
    alone = build_calibrator("ts").fit(shares[:, 0], is_first, kind="probabilities")
    found = alone.module()(torch.tensor([0.5, np.nan, -0.1, 1.2, np.inf])).numpy()
    assert np.isfinite(found[0]).all()
    assert np.isnan(found[1:]).all()


def test_one_column_of_more_rows_is_no_row_of_more_columns():
    logits = np.random.default_rng(0).normal(scale=3, size=200)
    calibrator = build_calibrator("ts").fit(logits, (logits > 1).astype(int))
    traced = torch.jit.trace(calibrator.module(), torch.tensor(logits[:3]), check_trace=False)
    with pytest.raises(RuntimeError, match="invalid for input"):
        traced(torch.zeros(4, 2, dtype=torch.float64))
    found = calibrator.module()(torch.tensor([1.0, np.nan, np.inf, -np.inf])).numpy()
    assert np.isfinite(found[[0, 3]]).all()
    assert np.isnan(found[[1, 2]]).all()


@pytest.mark.parametrize("id", ["ts", "vs"])
def test_a_network_with_a_calibrator_refuses_bad_rows_and_returns_nan_once_recorded(id, refuses):
    network = CalibratedModule(nn.Identity(), fitted(id))
    for row in BAD:
        with refuses(DataError, "a row with NaN, +inf or no finite number"):
            network(torch.tensor(np.vstack([GOOD, row])))
    rows = torch.export.Dim("rows", min=2)
    exported = torch.export.export(network, (EXAMPLE,), dynamic_shapes=(({0: rows},),))
    assert_only_good_rows(exported.module()(torch.tensor(BATCH)).numpy(), network.calibrator)


def test_scikit_learn_refuses_scores_that_are_nan(refuses):
    class Broken(LogisticRegression):
        def decision_function(self, X):
            scores = super().decision_function(X)
            return np.where(X[:, :1] > 90, np.nan, scores)

    generator = np.random.default_rng(0)
    rows = generator.normal(size=(90, 4))
    estimator = CalibratedEstimator(Broken(), "vs").fit(rows, np.arange(90) % 3)
    with refuses(DataError, "row 0 (counted from 0) has NaN"):
        estimator.predict_proba(np.full((1, 4), 100.0))
