"""A classifier of scikit-learn with a calibrator behind it."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator

from calgrid import CalibratedEstimator
from calgrid.calibrators import build_calibrator
from calgrid.errors import ConfigError, DataError

NAMES = np.array(["ant", "bee", "cow"])


def data(classes=3):
    X, y = make_classification(
        400, 8, n_informative=4, n_redundant=4, n_classes=classes, random_state=0
    )
    return X[:300], NAMES[y[:300]], X[300:], NAMES[y[300:]]


def test_scikit_learn_accepts_it():
    results = check_estimator(
        CalibratedEstimator(LogisticRegression(), cv=3), on_skip=None, on_fail=None
    )
    assert [each for each in results if each["status"] not in ("passed", "skipped")] == []
    assert len([each for each in results if each["status"] == "passed"]) > 50


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "inner", [LogisticRegression(), RandomForestClassifier(5, min_samples_leaf=20, random_state=0)]
)
def test_without_calibration_the_probabilities_are_the_classifiers(inner, classes):
    X, y, X_test, _ = data(classes)
    calibrated = CalibratedEstimator(inner, "none").fit(X, y)
    plain = inner.fit(X, y)
    np.testing.assert_allclose(
        calibrated.predict_proba(X_test), plain.predict_proba(X_test), atol=1e-9
    )
    assert (calibrated.predict(X_test) == plain.predict(X_test)).all()


def test_a_frozen_classifier_is_calibrated_on_the_rows_that_are_given():
    X, y, X_test, y_test = data()
    trained = GaussianNB().fit(X[:150], y[:150])
    calibrated = CalibratedEstimator(FrozenEstimator(trained), "smart", options={"seed": 3}).fit(
        X[150:], y[150:]
    )
    by_hand = build_calibrator("smart", seed=3)
    by_hand.fit(trained.predict_log_proba(X[150:]), np.searchsorted(NAMES, y[150:]))
    expected = by_hand.predict_proba(trained.predict_log_proba(X_test))
    np.testing.assert_allclose(calibrated.predict_proba(X_test), expected, atol=1e-6)
    assert log_loss(y_test, expected) < log_loss(y_test, trained.predict_proba(X_test))


def test_a_calibrator_sees_predictions_for_rows_that_were_left_out():
    X, y, X_test, _ = data()
    folds = StratifiedKFold(3)
    calibrated = CalibratedEstimator(LogisticRegression(), "ts", cv=folds).fit(X, y)
    unseen = cross_val_predict(LogisticRegression(), X, y, cv=folds, method="decision_function")
    by_hand = build_calibrator("ts").fit(unseen, np.searchsorted(NAMES, y))
    on_all = LogisticRegression().fit(X, y)
    np.testing.assert_array_equal(
        calibrated.predict_proba(X_test), by_hand.predict_proba(on_all.decision_function(X_test))
    )


def test_what_cannot_be_fitted_is_refused(refuses):
    X, y, X_test, y_test = data()
    trained = LogisticRegression().fit(X[y != "bee"], y[y != "bee"])
    with refuses(ValueError, "classes that the classifier was not trained on"):
        CalibratedEstimator(FrozenEstimator(trained)).fit(X_test, y_test)
    with refuses(TypeError, "argument 'sample_weight': calibrators weigh all rows alike"):
        CalibratedEstimator(LogisticRegression()).fit(X, y, sample_weight=np.ones(len(y)))
    with refuses(ConfigError, "Unknown calibrator 'smrt'", "'smart'"):
        CalibratedEstimator(LogisticRegression(), "smrt").fit(X, y)
    with refuses(DataError, "'fc' needs features"):
        CalibratedEstimator(LogisticRegression(), "fc").fit(X, y)


def test_scores_of_pairs_of_classes_are_refused(refuses):
    X, y, X_test, y_test = data()
    pairs = make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo"))
    for estimator in (pairs, FrozenEstimator(clone(pairs).fit(X, y))):
        with refuses(ConfigError, "gives 3 scores of pairs for 3 classes", "shape='ovr'"):
            CalibratedEstimator(estimator).fit(X, y)
    two = CalibratedEstimator(pairs).fit(X[y != "bee"], y[y != "bee"])
    known = y_test != "bee"
    assert (two.predict(X_test[known]) == y_test[known]).mean() > 0.7
