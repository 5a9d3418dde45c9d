"""All tables of results on published networks, those of ../published_networks.md among them.

python docs/published_networks/tables.py
"""

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t

HERE = Path(__file__).parent
SHOWN = [
    *("sms", "dirichlet", "ms_odir", "vs", "svs", "hts", "iso", "beta"),
    *("ts", "pts", "smart", "ets", "hb_ova", "bbq_ova", "kernel", "none"),
]

runs = pd.read_parquet(HERE / "metrics.parquet").query("split == 'test'")
value = (
    runs.groupby(["dataset", "backbone", "calibrator", "metric"], observed=True)["value"]
    .mean()
    .unstack("metric")
)

print("\nNetworks\n")
print("| network | accuracy % | debiased ECE % | with `ts` | NLL | with `ts` | lowest |")
print("| --- | ---: | ---: | ---: | ---: | ---: | --- |")
for (dataset, backbone), group in value.groupby(["dataset", "backbone"], observed=True):
    rows = group.loc[(dataset, backbone)]
    none, ts = rows.loc["none"], rows.loc["ts"]
    print(
        f"| {dataset}, {backbone} | {100 * none['accuracy']:.2f} "
        f"| {100 * none['ece_debiased']:.2f} | {100 * ts['ece_debiased']:.2f} "
        f"| {none['nll']:.4f} | {ts['nll']:.4f} "
        f"| {rows['nll'].min():.4f}, `{rows['nll'].idxmin()}` |"
    )


def over_networks(dataset):
    nll, ece, accuracy = (
        value.loc[dataset, metric].unstack("calibrator")
        for metric in ("nll", "ece_debiased", "accuracy")
    )
    difference = 1000 * nll.sub(nll["ts"], axis=0)
    n = len(difference)
    half = t.ppf(0.975, n - 1) * difference.std() / np.sqrt(n)
    table = pd.DataFrame({"mean": difference.mean(), "half": half, "lower": (difference < 0).sum()})
    table["ece"] = 100 * ece.mean()
    table["accuracy"] = 100 * (accuracy.mean() - accuracy["ts"].mean())
    return table.sort_values("mean"), n


def show(dataset):
    table, n = over_networks(dataset)
    print(f"| calibrator | NLL - that of `ts` | lower on, of {n} | debiased ECE % | accuracy |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, row in table.iterrows():
        ends = f"[{row['mean'] - row['half']:+.1f}, {row['mean'] + row['half']:+.1f}]"
        print(
            f"| `{name}` | {row['mean']:+.1f} {ends} | {row['lower']:.0f} | {row['ece']:.2f} "
            f"| {row['accuracy']:+.2f} |"
        )


for dataset in ("cifar10", "cifar100"):
    print(
        f"\nCalibrators on {dataset}, NLL in thousandths of a nat, 95 % intervals over networks\n"
    )
    show(dataset)

print("\nBoth data sets\n")
print(
    "| calibrator | CIFAR-10: NLL - that of `ts` | debiased ECE % "
    "| CIFAR-100: NLL - that of `ts` | debiased ECE % |"
)
print("| --- | ---: | ---: | ---: | ---: |")
tables = [over_networks(dataset)[0] for dataset in ("cifar10", "cifar100")]
for name in SHOWN:
    cells = []
    for table in tables:
        mean, half, ece = table.loc[name, ["mean", "half", "ece"]]
        cells.append(f"{mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}] | {ece:.2f}")
    print(f"| `{name}` | {' | '.join(cells)} |")


print("\nA survey of three networks with their weights\n")
lite = pd.read_parquet(HERE / "efficientnet_lite.parquet")
lite = lite.pivot_table(index=["backbone", "calibrator"], columns="metric", values="mean")
print("| network | calibrator | accuracy % | ECE % | its null % | NLL |")
print("| --- | --- | ---: | ---: | ---: | ---: |")
for (backbone, calibrator), row in lite.iterrows():
    print(
        f"| {backbone.removeprefix('timm/tf_')} | `{calibrator}` | {100 * row['accuracy']:.2f} "
        f"| {100 * row['ece']:.2f} | {100 * row['ece_null']:.2f} | {row['nll']:.4f} |"
    )
