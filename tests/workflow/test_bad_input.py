"""Bad input ends before any job with one clear sentence."""

import copy

import pytest
from tests.workflow.dag import CONFIG, Repository

pytestmark = pytest.mark.workflow


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return Repository(tmp_path_factory.mktemp("bad"))


def grid(**changes):
    config = copy.deepcopy(CONFIG)
    config["grids"][0].update(changes)
    return config


CASES = {
    "unknown method": (grid(methods=["mblss"]), "did you mean 'mbls'"),
    "duplicate seed": (grid(seeds=[1, 1]), "holds 1 twice"),
    "unknown first stage": (grid(methods=["tst+nothing"]), "Unknown method 'nothing'"),
    "data root": ({**CONFIG, "data_root": "no/such/folder"}, "does not exist"),
    "cuda without GPU": ({**CONFIG, "device": "cuda"}, "has no GPU"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_configuration_stops_before_any_job(case, repository, monkeypatch):
    config, sentence = CASES[case]
    if case == "cuda without GPU":
        from calgrid.configuration.rules import GPU_DEVICES

        if any(map(__import__("os").path.exists, GPU_DEVICES)):
            pytest.skip("this machine has a GPU")
    repository.configure(config, "bad.yaml")
    result = repository.snakemake("--configfile", "bad.yaml", "--cores", "1")
    output = result.stdout + result.stderr
    assert result.returncode != 0
    assert sentence in output
    assert "Traceback" not in output
    assert not (repository.root / "results").exists()


def test_a_block_that_is_there_twice_is_refused_though_snakemake_reads_it(repository):
    path = repository.configure(CONFIG, "twice.yaml")
    path.write_text(f"{path.read_text()}\nstudy: other\n")
    result = repository.snakemake("--configfile", "twice.yaml", "-n")
    output = result.stdout + result.stderr
    assert result.returncode == 1
    assert "twice.yaml, line" in output
    assert "the key 'study' is in line" in output
    assert "Traceback" not in output
