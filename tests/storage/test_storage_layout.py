"""Paths of runs and studies, as the file contract has them."""

from calgrid.storage.layout import Layout, RunKey, backbone_of, logits_files


def test_paths_of_the_file_contract():
    layout, run = Layout("results", "study"), RunKey("p", "d", "b", "tst+mbls", 3)
    assert layout.run(run) == "results/runs/p/d/b/tst+mbls/seed3"
    assert logits_files(["best"], ["ood/photos"])[-1] == "logits/best/ood/photos.parquet"
    assert layout.part(run) == "results/study/parts/p/d/b/tst+mbls/seed3"
    assert layout.data("digits_c") == "results/data/digits_c/manifest.json"
    assert layout.aggregate("metrics.parquet") == "results/study/metrics.parquet"


def test_a_run_lies_five_folders_deep_whatever_its_backbone():
    key = RunKey("p", "d", "timm/vit.s_in1k", "tst+mbls", 3)
    assert key.path == "p/d/timm+vit.s_in1k/tst+mbls/seed3"
    assert backbone_of(key.backbone_folder) == key.backbone
    plain = key._replace(backbone="resnet8")
    assert plain.path == "p/d/resnet8/tst+mbls/seed3"
    assert backbone_of(plain.backbone_folder) == "resnet8"
