"""All tables of results on photographs, those of ../photographs.md among them.

    python docs/photographs/tables.py

P-values are paired t-tests over three seeds on these test images, with Holm's correction; bold is
below 0.05.
"""

from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent

summary = pd.read_parquet(HERE / "summary.parquet")
test = (
    summary.query("split == 'test' and checkpoint == 'last'")
    .set_index(["method", "calibrator", "metric"])
    .sort_index()
)
methods = [
    "ce",
    "ls",
    "mbls",
    "fl3",
    "mixup",
    "fedlas_ls",
    "fedlas_mbls",
    "tst",
    "maccal",
    "maccal_w512",
    "maccal+mbls",
]


def share(method, metric, calibrator="none", interval=False):
    row = test.loc[(method, calibrator, metric)]
    ends = f" [{100 * row['ci_low']:.2f}, {100 * row['ci_high']:.2f}]" if interval else ""
    return f"{100 * row['mean']:.2f}{ends}"


def compared(method):
    return "" if method == "ce" else f"{test.loc[(method, 'none', 'nll'), 'p_seeds_holm']:.3f}"


print("\nOverview; p of the NLL against `ce`\n")
print("| method | accuracy | debiased ECE | with `ts`: ECE | NLL | p | with `ts`: NLL |")
print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
for method in methods:
    none, ts = (test.loc[(method, calibrator, "nll"), "mean"] for calibrator in ("none", "ts"))
    print(
        f"| `{method}` | {share(method, 'accuracy')} "
        f"| {share(method, 'ece_debiased', interval=True)} | {share(method, 'ece', 'ts')} "
        f"| {none:.4f} | {compared(method)} | {ts:.4f} |"
    )

print("\nUncalibrated networks\n")
print("| method | accuracy | debiased ECE | ECE | null | NLL | p |")
print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
for method in methods:
    print(
        f"| `{method}` | {share(method, 'accuracy')} "
        f"| {share(method, 'ece_debiased', interval=True)} | {share(method, 'ece')} "
        f"| {share(method, 'ece_null')} | {test.loc[(method, 'none', 'nll'), 'mean']:.4f} "
        f"| {compared(method)} |"
    )


print("\nECE, fitted on 5,000 validation images\n")
calibrators = ["none", "ts", "ets", "vs", "iso", "smart"]
print(f"| method | {' | '.join(f'`{name}`' for name in calibrators)} |")
print("| --- |" + " ---: |" * len(calibrators))
for method in methods:
    print(f"| `{method}` | {' | '.join(share(method, 'ece', name) for name in calibrators)} |")


def answers(name):
    tests = pd.read_parquet(HERE / f"{name}.parquet")
    wanted = tests[tests["metric"].isin(["nll", "ece_debiased", "accuracy"])]
    print("| question | calibrator | NLL (p) | debiased ECE, points (p) | accuracy, points (p) |")
    print("| --- | --- | ---: | ---: | ---: |")
    for (question, calibrator), rows in wanted.groupby(
        ["question", "calibrator"], sort=False, observed=True
    ):
        found = rows.set_index("metric")
        cells = []
        for metric, factor, digits in (
            ("nll", 1, 4),
            ("ece_debiased", 100, 2),
            ("accuracy", 100, 2),
        ):
            mark = "**" if found.loc[metric, "p_seeds_holm"] < 0.05 else ""
            value = f"{factor * found.loc[metric, 'difference']:+.{digits}f}"
            cells.append(f"{mark}{value}{mark} ({found.loc[metric, 'p_seeds_holm']:.3f})")
        print(f"| {question} | `{calibrator}` | {' | '.join(cells)} |")


print("\nQuestions, Holm's correction over all\n")
answers("comparisons")


print("\n`smart` minus `ts` on the same networks\n")
runs = pd.read_parquet(HERE / "metrics.parquet").query("split == 'test'")
values = runs.pivot_table(
    index=["method", "seed"], columns=["calibrator", "metric"], values="value", observed=True
)
print("| first stage | ECE, points | lower in | NLL | lower in |")
print("| --- | ---: | ---: | ---: | ---: |")
for method in [*methods, "all"]:
    own = values if method == "all" else values.loc[[method]]
    ece, nll = (own["smart"][metric] - own["ts"][metric] for metric in ("ece", "nll"))
    counts = [f"{(each < 0).sum()} of {len(each)}" for each in (ece, nll)]
    name = "all" if method == "all" else f"`{method}`"
    print(f"| {name} | {100 * ece.mean():+.2f} | {counts[0]} | {nll.mean():+.4f} | {counts[1]} |")


print("\nNumber of validation images; in how many of 21 fits `smart` is lower than `ts`\n")
fits = pd.read_parquet(HERE / "val_size.parquet")
fits["rows"] = fits["dataset"].astype(str).str.rpartition("_n")[2].astype(int)
sizes = fits.pivot_table(
    index=["rows", "method", "seed"],
    columns=["metric", "calibrator"],
    values="value",
    observed=True,
)
print(
    "| validation images | ECE `ts` | `pts` | `smart` | lower "
    "| NLL `ts` | `pts` | `smart` | lower |"
)
print("| ---: |" + " ---: |" * 8)
for rows, own in sizes.groupby("rows"):
    cells = []
    for metric, shown in (("ece", lambda x: f"{100 * x:.2f}"), ("nll", lambda x: f"{x:.3f}")):
        means = own[metric].mean()
        cells += [shown(means[name]) for name in ("ts", "pts", "smart")]
        cells.append(str((own[metric]["smart"] < own[metric]["ts"]).sum()))
    print(f"| {rows:,} | {' | '.join(cells)} |")


print("\nNorm and gate of FeDLaS; p against `fedlas_ls` or `fedlas_mbls`, over the four\n")
parts = (
    pd.read_parquet(HERE / "fedlas.parquet")
    .set_index(["method", "calibrator", "metric"])
    .sort_index()
)
tests = pd.read_parquet(HERE / "fedlas_comparisons.parquet").set_index(
    ["against", "calibrator", "metric"]
)
print("| method | accuracy (p) | debiased ECE (p) | NLL (p) | ECE after `ts` (p) |")
print("| --- | ---: | ---: | ---: | ---: |")
for method in [
    "ls",
    "fedlas_ls",
    "fedlas_ls_random",
    "fedlas_ls_positive",
    "mbls",
    "fedlas_mbls",
    "fedlas_mbls_random",
    "fedlas_mbls_positive",
]:
    cells = []
    for calibrator, metric in (
        ("none", "accuracy"),
        ("none", "ece_debiased"),
        ("none", "nll"),
        ("ts", "ece"),
    ):
        mean = parts.loc[(method, calibrator, metric), "mean"]
        shown = f"{mean:.4f}" if metric == "nll" else f"{100 * mean:.2f}"
        known = (method, calibrator, metric) in tests.index
        cells.append(
            shown
            + (f" ({tests.loc[(method, calibrator, metric), 'p_seeds_holm']:.3f})" if known else "")
        )
    print(f"| `{method}` | {' | '.join(cells)} |")


print("\nAblation of MaC-Cal\n")
parts = (
    pd.read_parquet(HERE / "maccal.parquet")
    .set_index(["method", "calibrator", "metric"])
    .sort_index()
)
print("| method | accuracy | debiased ECE | NLL | ECE after `ts` | NLL after `ts` |")
print("| --- | ---: | ---: | ---: | ---: | ---: |")
for method in [
    "ce",
    "maccal_a1",
    "maccal_a2",
    "maccal_a3",
    "maccal_a4",
    "maccal_w512",
    "maccal_unmasked",
    "maccal_l05",
    "maccal_l09",
    "maccal_l10",
]:
    ece = parts.loc[(method, "none", "ece_debiased")]
    after = 100 * parts.loc[(method, "ts", "ece"), "mean"]
    print(
        f"| `{method}` | {100 * parts.loc[(method, 'none', 'accuracy'), 'mean']:.2f} "
        f"| {100 * ece['mean']:.2f} [{100 * ece['ci_low']:.2f}, {100 * ece['ci_high']:.2f}] "
        f"| {parts.loc[(method, 'none', 'nll'), 'mean']:.4f} | {after:.2f} "
        f"| {parts.loc[(method, 'ts', 'nll'), 'mean']:.4f} |"
    )


print("\nCorruptions, out-of-distribution images and human labels\n")
shift, ood = (pd.read_parquet(HERE / f"{name}.parquet") for name in ("shift", "ood"))
shift = shift.query("severity == 5").set_index(["method", "calibrator"])
ood = ood.set_index(["method", "calibrator"])
print(
    "| method | ECE, severity 5 | after `ts` | after `smart` | AUROC "
    "| KL to people | after `ts` | after `smart` |"
)
print("| --- |" + " ---: |" * 7)
for method in methods:
    errors = [
        f"{100 * shift.loc[(method, name), 'ece_mean']:.2f}" for name in ("none", "ts", "smart")
    ]
    people = [
        f"{test.loc[(method, name, 'soft_kl'), 'mean']:.4f}" for name in ("none", "ts", "smart")
    ]
    auroc = f"{100 * ood.loc[(method, 'none'), 'auroc_mean']:.2f}"
    print(f"| `{method}` | {' | '.join(errors)} | {auroc} | {' | '.join(people)} |")


print("\nWith crops and flips: calibrators minus `ts`, 27 networks\n")
fits = pd.read_parquet(HERE / "crops_flips_calibrators.parquet")
fits = fits[~fits["method"].isin(["maccal", "maccal+mbls"])]
values = fits.pivot_table(
    index=["method", "seed"], columns=["calibrator", "metric"], values="value", observed=True
)
found = {name: values[name].dropna() for name in values.columns.levels[0]}
found = {name: own - values["ts"].loc[own.index] for name, own in found.items() if name != "ts"}
print(
    "| calibrator | NLL | lower in | ECE, points | lower in "
    "| class-wise ECE, points | accuracy, points |"
)
print("| --- |" + " ---: |" * 6)
for name in sorted(found, key=lambda name: found[name]["nll"].mean()):
    own = found[name]
    nll, ece = (f"{(own[metric] < 0).sum()} of {len(own)}" for metric in ("nll", "ece"))
    means = 100 * own[["ece", "cece", "accuracy"]].mean()
    print(
        f"| `{name}` | {own['nll'].mean():+.4f} | {nll} | {means['ece']:+.2f} | {ece} "
        f"| {means['cece']:+.2f} | {means['accuracy']:+.2f} |"
    )


print("\nWith crops and flips: controls of FeDLaS\n")
answers("crops_flips_controls_comparisons")
