"""All tables of results on real logits, those of ../real_logits.md among them.

    python docs/real_logits/tables.py

Brackets: 95 % bootstrap intervals over test samples (200 resamples). ±: standard deviation over
five seeds of a randomly initialised calibrator. Bold: lowest of the table.
"""

from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
SETS = {
    "CIFAR-10 ResNet-50": ("cifar10", "resnet50"),
    "CIFAR-10 VGG-16": ("cifar10", "vgg16"),
    "CIFAR-10 LeNet-5": ("cifar10", "lenet5"),
    "CIFAR-100 DenseNet": ("cifar100", "densenet_bc_100"),
    "ChestX-ray14 DenseNet": ("chestxray14", "densenet121"),
}

tested = pd.read_parquet(HERE / "summary.parquet").query("split == 'test'")


def show(dataset, backbone):
    rows = tested.query(f"dataset == '{dataset}' and backbone == '{backbone}'")
    rows = rows.set_index(["metric", "calibrator"])
    ece, debiased = rows.loc["ece"], rows.loc["ece_debiased"]
    heading = "| calibrator | debiased ECE % [95 %] | ECE % | null % | NLL | Brier | accuracy % |"
    printed = ece["published"].notna().any()
    print(heading + " published ECE % |" if printed else heading)
    print("| --- |" + " --- |" * (7 if printed else 6))

    def number(metric, calibrator, form):
        values = rows.loc[metric, "mean"]
        said = form.format(values[calibrator])
        return f"**{said}**" if values[calibrator] == values.min() else said

    for name in debiased["mean"].sort_values().index:
        row = ece.loc[name]
        ends = "[{ci_low:.2f}, {ci_high:.2f}]".format(
            **100 * debiased.loc[name, ["ci_low", "ci_high"]]
        )
        spread = f" ± {100 * row['std_fit']:.2f}" if row["n_fits"] > 1 else ""
        cells = [
            f"`{name}`",
            f"{number('ece_debiased', name, '{:.2%}').replace('%', '')} {ends}",
            f"{100 * row['mean']:.2f}{spread}",
            f"{100 * rows.loc['ece_null', 'mean'][name]:.2f}",
            number("nll", name, "{:.4f}"),
            number("brier", name, "{:.4f}"),
            f"{100 * rows.loc['accuracy', 'mean'][name]:.2f}",
        ]
        if printed:
            cells.append("" if pd.isna(row["published"]) else f"{100 * row['published']:.2f}")
        print("| " + " | ".join(cells) + " |")


print("\nDebiased ECE in per cent; NLL\n")
print("| calibrator |", " | ".join(SETS), "|")
print("| --- |" + " --- |" * len(SETS))
means = tested.set_index(["dataset", "backbone", "metric", "calibrator"])["mean"].sort_index()
for name in means[("cifar10", "resnet50", "ece_debiased")].sort_values().index:
    cells = []
    for place in SETS.values():
        marked = []
        for metric, scale, digits in (("ece_debiased", 100, 2), ("nll", 1, 4)):
            values = means[(*place, metric)]
            mark = "**" if values[name] == values.min() else ""
            marked.append(f"{mark}{scale * values[name]:.{digits}f}{mark}")
        cells.append("; ".join(marked))
    print(f"| `{name}` | {' | '.join(cells)} |")

for title, place in SETS.items():
    print(f"\n{title}\n")
    show(*place)

print("\nWithout calibration, all rows of each file; T is `ts` fitted to the whole file\n")
print("| file | rows x classes | accuracy % | ECE % | NLL | T |")
print("| --- | --- | --- | --- | --- | --- |")
for cells in pd.read_csv(HERE / "files.csv", dtype=str).itertuples(index=False):
    print(f"| {' | '.join(cells)} |")
