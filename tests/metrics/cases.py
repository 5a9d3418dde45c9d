"""Inputs that several metric tests share."""

import numpy as np
from hypothesis import strategies as st


def with_confidence(confidence, correct, n_classes=20):
    """Probabilities with these confidences for class 0, and labels that are right or wrong."""
    confidence, correct = np.asarray(confidence, dtype=float), np.asarray(correct)
    rest = (1 - confidence) / (n_classes - 1)
    probs = np.column_stack([confidence, np.repeat(rest[:, None], n_classes - 1, axis=1)])
    return probs, np.where(correct == 1, 0, 1)


def calibrated(n, k=5, seed=0, sharpness=2.0):
    """Probabilities and labels drawn from them."""
    rng = np.random.default_rng(seed)
    probs = softmax(sharpness * rng.normal(size=(n, k)))
    return probs, (probs.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)


def softmax(logits):
    exponentials = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


@st.composite
def predictions(draw, max_samples=40):
    """Probabilities and labels; half of the cases lie on a grid, so that values tie."""
    n, k = draw(st.integers(1, max_samples)), draw(st.integers(2, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if draw(st.booleans()):
        probs = rng.multinomial(30, rng.dirichlet(np.ones(k)), size=n) / 30
    else:
        probs = softmax(rng.normal(size=(n, k)) * draw(st.sampled_from([0.1, 2.0, 30.0])))
    return probs, rng.integers(0, k, n)


A = with_confidence(
    [0.95, 0.92, 0.85, 0.77, 0.71, 0.65, 0.58, 0.53, 0.46, 0.38], [1, 1, 1, 0, 1, 1, 0, 1, 0, 0]
)
PERCENT = [(70, 19, 11), (10, 75, 15), (25, 25, 50), (45, 30, 25), (5, 5, 90), (55, 35, 10)]
B = np.array(PERCENT) / 100, np.array([0, 1, 1, 2, 2, 0])
