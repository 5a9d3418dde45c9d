import pytest

from calgrid.datasets import open_prepared, prepare


@pytest.fixture(scope="session")
def digits_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "digits"
    prepare("digits", folder)
    return folder


@pytest.fixture(scope="session")
def digits(digits_dir):
    return open_prepared(digits_dir)


@pytest.fixture(scope="session")
def digits_c(digits_dir):
    folder = digits_dir.parent / "digits_c"
    prepare("digits_c", folder, base_dir=digits_dir)
    return open_prepared(folder)


@pytest.fixture(scope="session")
def photos(digits_dir):
    folder = digits_dir.parent / "photos"
    prepare("photos", folder, base_dir=digits_dir)
    return open_prepared(folder)
