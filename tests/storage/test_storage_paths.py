"""Paths of runs and studies, as the file contract has them."""

from types import SimpleNamespace

from calgrid.storage.records import RunKey, logits_files, run_key


def test_paths_of_the_file_contract():
    assert RunKey("p", "d", "b", "tst+mbls", 3).path == "p/d/b/tst+mbls/seed3"
    assert logits_files(["best"], ["ood/photos"])[-1] == "logits/best/ood/photos.parquet"


def test_a_run_lies_five_folders_deep_whatever_its_backbone():
    for backbone, folder in (("timm/vit.s_in1k", "timm+vit.s_in1k"), ("resnet8", "resnet8")):
        key = RunKey("p", "d", backbone, "tst+mbls", 3)
        assert key.path == f"p/d/{folder}/tst+mbls/seed3"
        assert run_key(SimpleNamespace(**{**key._asdict(), "backbone": folder, "seed": "3"})) == key
