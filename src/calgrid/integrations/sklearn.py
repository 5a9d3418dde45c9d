"""A scikit-learn classifier with a calibrator of calgrid."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv, cross_val_predict
from sklearn.pipeline import Pipeline
from sklearn.utils import column_or_1d, get_tags, indexable
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from calgrid.calibrators import build_calibrator, logits_from_probabilities
from calgrid.errors import ConfigError


def _classifier(estimator: Any) -> Any:
    """Return the classifier in a frozen one, a pipeline or a search."""
    if isinstance(estimator, FrozenEstimator):
        return _classifier(estimator.estimator)
    if isinstance(estimator, Pipeline):
        return _classifier(estimator[-1])
    if hasattr(estimator, "best_estimator_"):
        return _classifier(estimator.best_estimator_)
    return estimator


class CalibratedEstimator(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]  # without types
    """A scikit-learn classifier with calibrated probabilities.

    The calibrator is fitted on cross-validated predictions of the classifier, which is then fitted
    on all rows. Wrap an already trained classifier in a :class:`sklearn.frozen.FrozenEstimator`;
    ``fit`` then fits only the calibrator, on rows that must not be training rows of the classifier.

    Logits are the ``decision_function`` of the classifier (with two classes: 0 and its value), or
    the logarithm of its ``predict_proba`` if it has none.

    Parameters
    ----------
    estimator : classifier.
    calibrator : identifier of a calibrator that needs only logits (``calgrid list calibrators``).
    options : non-default hyper-parameters of the calibrator, for example ``{"seed": 1}``.
    cv : number of folds, or any ``cv`` of :func:`sklearn.model_selection.check_cv`; unused for a
        frozen classifier.

    Attributes
    ----------
    classes_ : labels of the K classes. estimator_, calibrator_ : fitted classifier and calibrator.
    """

    def __init__(
        self,
        estimator: Any,
        calibrator: str = "ts",
        *,
        options: Mapping[str, Any] | None = None,
        cv: Any = 5,
    ) -> None:
        self.estimator = estimator
        self.calibrator = calibrator
        self.options = options
        self.cv = cv

    def fit(self, X: Any, y: Any, **refused: Any) -> Self:
        """Fit classifier and calibrator on rows ``(N, ...)`` and labels ``(N,)``.

        Raises
        ------
        ConfigError : the calibrator or one of its options does not exist, or the classifier gives
            scores of pairs of classes.
        TypeError : a further argument is given, such as ``sample_weight``.
        DataError : the calibrator needs more than logits.
        ValueError : scikit-learn or the classifier refuses the data.
        """
        if refused:
            # the words of Python, which scikit-learn's checks look for
            raise TypeError(
                f"CalibratedEstimator.fit got an unexpected keyword argument '{min(refused)}': "
                "calibrators weigh all rows alike; fit the classifier with it and wrap it in a "
                "FrozenEstimator."
            )
        calibrator = build_calibrator(self.calibrator, **(self.options or {}))
        X, y = indexable(X, y)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        frozen = isinstance(self.estimator, FrozenEstimator)
        if not frozen and len(np.unique(y)) < 2:
            raise ValueError("y has one class: a classifier needs rows of at least two.")
        self.estimator_ = self.estimator if frozen else clone(self.estimator)
        if frozen:
            check_is_fitted(self.estimator_)
            scores = getattr(self.estimator_, self._method())(X)
        else:
            folds = check_cv(self.cv, y, classifier=True)
            scores = cross_val_predict(self.estimator_, X, y, cv=folds, method=self._method())
            self.estimator_.fit(X, y)
        self.classes_: NDArray[Any] = self.estimator_.classes_
        self._check_scores(scores)
        labels = np.searchsorted(self.classes_, y)
        if not np.array_equal(self.classes_[np.minimum(labels, len(self.classes_) - 1)], y):
            raise ValueError(
                "y has classes that the classifier was not trained on; remove their rows."
            )
        self.calibrator_ = calibrator.fit(self._logits(scores), labels)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def _check_scores(self, scores: NDArray[np.float64]) -> None:
        """Raise ConfigError unless there is one score for each class, or one for two."""
        if self._method() != "decision_function" or scores.ndim == 1:
            return
        shape = getattr(_classifier(self.estimator_), "decision_function_shape", "ovr")
        if shape == "ovo" or scores.shape[1] != len(self.classes_):
            raise ConfigError(
                f"estimator gives {scores.shape[1]} scores of pairs for {len(self.classes_)} "
                "classes; set its decision_function_shape='ovr', or use one with a score for each "
                "class."
            )

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return calibrated probabilities ``(N, K)`` in the order of ``classes_``."""
        check_is_fitted(self)
        scores = getattr(self.estimator_, self._method())(X)
        return self.calibrator_.predict_proba(self._logits(scores))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the labels ``(N,)`` with the largest probability."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def _method(self) -> str:
        return (
            "decision_function" if hasattr(self.estimator, "decision_function") else "predict_proba"
        )

    def _logits(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        if self._method() == "predict_proba":
            return logits_from_probabilities(scores)
        return np.column_stack([np.zeros(len(scores)), scores]) if scores.ndim == 1 else scores

    def __sklearn_tags__(self) -> Any:
        """Return the tags of the classifier."""
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags
