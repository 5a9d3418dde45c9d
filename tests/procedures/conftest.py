"""The tiny data set and protocol of the tests of the training loop."""

from tests.training.conftest import make_spec, one_thread, prepared

__all__ = ["make_spec", "one_thread", "prepared"]
