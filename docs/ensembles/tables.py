"""All tables of results on ensembles, those of ../ensembles.md among them.

python docs/ensembles/tables.py
"""

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t

HERE = Path(__file__).parent

print("\nDigits, means over fifteen seeds or five groups\n")
summary = pd.read_parquet(HERE / "summary.parquet")
means = summary.pivot_table(index=["method", "calibrator"], columns="metric", values="mean")
print(
    "| method | accuracy % | NLL | refinement | calibration | NLL with `ts` | ECE % | with `ts` |"
)
print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
for method in (
    "ce",
    "fedlas_ls",
    "ls",
    "mbls",
    "ens3(ce)",
    "ens3(ce,logit)",
    "ens3(ce,ts)",
    "ens3(fedlas_ls)",
    "ens3(ls)",
    "ens3(mbls)",
):
    none, ts = means.loc[(method, "none")], means.loc[(method, "ts")]
    print(
        f"| `{method}` | {100 * none['accuracy']:.2f} | {none['nll']:.4f} "
        f"| {none['nll_refinement']:.4f} | {none['nll_calibration']:.4f} | {ts['nll']:.4f} "
        f"| {100 * none['ece']:.2f} | {100 * ts['ece']:.2f} |"
    )


print("\nDigits, parts of the NLL\n")
differences = summary[summary["calibrator"] == "none"].pivot(
    index="method", columns="metric", values=["diff_vs_baseline", "p_holm"]
)
print(
    "| method | NLL against `ce` | calibration part (Holm p) | refinement part (Holm p) "
    "| share of refinement % |"
)
print("| --- | ---: | ---: | ---: | ---: |")
for method in ("fedlas_ls", "ls", "mbls"):
    change, p = (differences.loc[method, column] for column in ("diff_vs_baseline", "p_holm"))
    cells = [
        f"{change[part]:.4f} ({p[part]:.1g})" for part in ("nll_calibration", "nll_refinement")
    ]
    share = 100 * change["nll_refinement"] / change["nll"]
    print(f"| `{method}` | {change['nll']:.4f} | {' | '.join(cells)} | {share:.0f} |")


print("\nDigits, questions\n")
answers = pd.read_parquet(HERE / "comparisons.parquet").query("metric == 'nll'")
print("| method | against | calibrator | NLL | Holm p | found with 80 % | verdict |")
print("| --- | --- | --- | ---: | ---: | ---: | --- |")
for row in answers.itertuples():
    print(
        f"| `{row.method}` | `{row.against}` | `{row.calibrator}` | {row.difference:+.4f} "
        f"| {row.p_holm:.2g} | {row.detectable:.4f} | {row.verdict} |"
    )


print("\nEpochs, means over ten seeds\n")
runs = pd.read_parquet(HERE / "refined_checkpoint.parquet")
index, columns = ["method", "seed", "checkpoint"], ["calibrator", "metric"]
wide = runs.pivot_table(index=index, columns=columns, values="value", observed=True)
means = wide.groupby(["method", "checkpoint"], observed=True).mean()
print("| method | checkpoint | accuracy % | NLL | with `ts` | ECE % | with `ts` |")
print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
for method in ("ce", "ls", "fedlas_ls"):
    for checkpoint in ("best", "refined", "last"):
        none, ts = (means.loc[(method, checkpoint), calibrator] for calibrator in ("none", "ts"))
        print(
            f"| `{method}` | {checkpoint} | {100 * none['accuracy']:.2f} | {none['nll']:.4f} "
            f"| {ts['nll']:.4f} "
            f"| {100 * none['ece']:.2f} | {100 * ts['ece']:.2f} |"
        )


print("\n`refined` minus another epoch, t-intervals over ten seeds\n")
print("| method | against | calibrator | NLL, 95 % interval | accuracy, points |")
print("| --- | --- | --- | ---: | ---: |")
for method in ("ce", "ls", "fedlas_ls"):
    for against in ("best", "last"):
        difference = (
            wide.xs("refined", level="checkpoint").loc[method]
            - wide.xs(against, level="checkpoint").loc[method]
        )
        half = t.ppf(0.975, len(difference) - 1) * difference.std() / np.sqrt(len(difference))
        for calibrator in ("none", "ts"):
            mean, nll = difference[calibrator].mean(), (calibrator, "nll")
            print(
                f"| `{method}` | {against} | `{calibrator}` | {mean['nll']:+.4f} "
                f"[{mean['nll'] - half[nll]:+.4f}, {mean['nll'] + half[nll]:+.4f}] "
                f"| {100 * mean['accuracy']:+.2f} |"
            )


print("\nEnsembles of the CIFAR-10 bank\n")
summary = pd.read_parquet(HERE / "cifar10.parquet")
table = summary.pivot_table(
    index=["backbone", "method", "calibrator"], columns="metric", values="mean", sort=False
)
print("| network | method | accuracy % | NLL | with `ts` | Brier | with `ts` | ECE % | with `ts` |")
print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
for (backbone, method), rows in table.groupby(level=[0, 1], sort=False):
    none, ts = (rows.loc[(backbone, method, calibrator)] for calibrator in ("none", "ts"))
    print(
        f"| {backbone} | `{method}` | {100 * none['accuracy']:.2f} | {none['nll']:.4f} "
        f"| {ts['nll']:.4f} | {none['brier']:.4f} | {ts['brier']:.4f} "
        f"| {100 * none['ece']:.2f} | {100 * ts['ece']:.2f} |"
    )


print("\nEnsembles of the CIFAR-10 bank, questions\n")
answers = pd.read_parquet(HERE / "cifar10_comparisons.parquet")
print("| method | against | calibrator | NLL | 95 % interval, these networks | verdict |")
print("| --- | --- | --- | ---: | ---: | --- |")
for row in answers.itertuples():
    print(
        f"| `{row.method}` | `{row.against}` | `{row.calibrator}` | {row.difference:+.4f} "
        f"| [{row.ci_low:+.4f}, {row.ci_high:+.4f}] | {row.verdict} |"
    )


print("\nExpected Brier score of any number of networks, from one and five\n")
value = table["brier"].xs("none", level="calibrator")
one, pooled = value.loc[("airbench24", "ce")], value.loc[("airbench24", "ens5(ce)")]
limit = (5 * pooled - one) / 4
print("| networks | their cost | Brier |")
print("| --- | ---: | ---: |")
print(f"| one airbench24 | 7.7 min | {one:.4f} |")
print(f"| five, measured | 39 min | {pooled:.4f} |")
print(f"| any number, expected | | {limit:.4f} |")
print(f"| one airbench64, measured | 39 min | {value.loc[('airbench64', 'ce')]:.4f} |")
