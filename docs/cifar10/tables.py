"""All tables of results on CIFAR-10, those of ../cifar10*.md among them.

    python docs/cifar10/tables.py

Verdicts are by the rule of docs/statistics.md; of a tie they have the difference that would have
been found with a power of 80 %.
"""

import zipfile
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
PAPERS = HERE.parents[1] / "src" / "calgrid" / "papers"
SHOWN = [
    ("none", "accuracy"),
    ("none", "nll"),
    ("ts", "nll"),
    ("none", "squared_ce"),
    ("ts", "squared_ce"),
]
#: heading -> shift, severity, metric, scale, digits
CELLS = {
    "ECE %, JPEG": ("jpeg", 0, "ece", 100, 2),
    "ECE %, severity 5": ("mean", 5, "ece", 100, 2),
    "NLL, severity 5": ("mean", 5, "nll", 1, 3),
    "AUROC %, CIFAR-100": ("ood/cifar100_test", 0, "auroc", 100, 1),
    "people": ("", 0, "soft_kl", 1, 3),
}


def overview(frame, methods, against="ce"):
    """Means over seeds; beside the NLL its verdict against the baseline."""
    rows = frame[frame["against"] == against]
    rows = rows.set_index(["method", "calibrator", rows["metric"].rename("of")]).sort_index()
    print("| method | accuracy % | ECE % | with `ts` | NLL | with `ts` |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for method in methods:
        none, ts = (rows.loc[(method, calibrator)] for calibrator in ("none", "ts"))
        cells = [f"{100 * none.loc['accuracy', 'mean']:.2f}"]
        cells += [f"{100 * own.loc['ece', 'mean']:.2f}" for own in (none, ts)]
        for own in (none.loc["nll"], ts.loc["nll"]):
            word = "" if method == against else f" {own['verdict']}"
            cells.append(f"{own['mean']:.4f}{word}")
        print(f"| `{method}` | {' | '.join(cells)} |")


def means_of(frame, methods, against="ce"):
    means = frame[frame["against"] == against]
    means = means.set_index(["method", "calibrator", "metric"]).sort_index()
    print(
        "| method | seeds | accuracy % | ECE % | its null % | with `ts` | NLL | with `ts` "
        "| Brier | with `ts` |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for method in methods:
        none, ts = (means.loc[(method, calibrator), "mean"] for calibrator in ("none", "ts"))
        seeds = means.loc[(method, "none", "nll"), "n_seeds"]
        print(
            f"| `{method}` | {seeds:.0f} | {100 * none['accuracy']:.2f} | {100 * none['ece']:.2f} "
            f"| {100 * none['ece_null']:.2f} | {100 * ts['ece']:.2f} | {none['nll']:.4f} "
            f"| {ts['nll']:.4f} | {none['brier']:.4f} | {ts['brier']:.4f} |"
        )


def before_and_after(means, methods):
    print("| method | accuracy % | ECE % | with `ts` | NLL | with `ts` |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for method in methods:
        none, ts = (means.loc[(method, calibrator)] for calibrator in ("none", "ts"))
        print(
            f"| `{method}` | {100 * none['accuracy']:.2f} | {100 * none['ece']:.2f} "
            f"| {100 * ts['ece']:.2f} | {none['nll']:.4f} | {ts['nll']:.4f} |"
        )


def verdict(row):
    scale, digits = (100, 2) if row["metric"] == "accuracy" else (1, 4)
    power = f", {scale * row['detectable']:.{digits}f}" if row["verdict"] == "tie" else ""
    p_value = f"p {row['p_holm']:.3f}" if row["p_holm"] >= 0.0005 else "p < 0.001"
    return f"{scale * row['difference']:+.{digits}f}, {row['verdict']}{power} ({p_value})"


def verdicts(frame, compared):
    answers = frame.set_index(["method", "against", "calibrator", frame["metric"].rename("of")])
    answers = answers.sort_index()
    print(
        "| method | against | accuracy, points | NLL | NLL with `ts` | calibration error "
        "| with `ts` |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for method, against in compared:
        cells = [verdict(answers.loc[(method, against, *place)]) for place in SHOWN]
        print(f"| `{method}` | `{against}` | {' | '.join(cells)} |")


def elsewhere(frame, methods, shown, against="ce"):
    means = frame[frame["against"] == against]
    means = means.set_index(["shift", "severity", "method", "calibrator", "metric"])["mean"]
    means = means.sort_index()
    print(f"| method | {' | with `ts` | '.join(shown)} | with `ts` |")
    print("| --- |" + " ---: |" * 2 * len(shown))
    for method in methods:
        cells = []
        for name in shown:
            shift, severity, metric, scale, digits = CELLS[name]
            for calibrator in ("none", "ts"):
                mean = means.loc[(shift, severity, method, calibrator, metric)]
                cells.append(f"{scale * mean:.{digits}f}")
        print(f"| `{method}` | {' | '.join(cells)} |")


def against_ts(frame, methods, calibrators):
    answers = frame[frame["against"] == "ts"]
    answers = answers.set_index(["calibrator", "metric", "method"]).sort_index()
    print(f"| method | {' | '.join(f'`{name}`' for name in calibrators)} |")
    print("| --- |" + " --- |" * len(calibrators))
    for method in methods:
        rows = [answers.loc[(name, "nll", method)] for name in calibrators]
        cells = [f"{row['difference']:+.4f}, {row['verdict']}" for row in rows]
        print(f"| `{method}` | {' | '.join(cells)} |")


crops = pd.read_parquet(HERE / "crops.parquet")
clean = crops[crops["shift"] == ""]
methods = ["ce", "ls", "fedlas_ls", "mbls", "fedlas_mbls", "fl3", "mixup"]
second = pd.read_parquet(HERE / "second.parquet")
clean_second = second[second["shift"] == ""]
further = ["ce", "acls", "mdca", "tst", "maccal"]
fit = pd.read_parquet(HERE / "fit.parquet")
clean_fit = fit[fit["shift"] == ""]
fitted = [
    *("ce", "ls", "ls_a025", "fedlas_ls", "mbls", "fedlas_mbls"),
    *("tst", "maccal", "maccal+mbls"),
]
parts = pd.read_parquet(HERE / "fedlas.parquet")
variants = [
    f"fedlas_ls_{part}"
    for part in ("maxprob", "maxlogit", "const", "random", "positive", "negative")
]

print("\n# Networks that fit their training images\n")
overview(clean_fit, fitted)
print("\nNull ECE and Brier score\n")
means_of(clean_fit, fitted)
print("\nAgainst `ce`, Holm's correction for the eight methods\n")
verdicts(clean_fit, [(method, "ce") for method in fitted[1:]])
print("\nOther questions, Holm's correction for the five\n")
asked = [
    ("fedlas_ls", "ls"),
    ("fedlas_ls", "ls_a025"),
    ("fedlas_mbls", "mbls"),
    ("maccal", "tst"),
    ("maccal+mbls", "mbls"),
]
verdicts(clean_fit, asked)
print("\nCorrupted and other images\n")
elsewhere(fit, [method for method in fitted if method != "ls_a025"], list(CELLS))
print("\nCalibrators against one temperature, NLL\n")
against_ts(clean_fit, fitted, ["ets", "smart", "svs", "vs", "dirichlet"])

print("\n# Networks with crops and flips\n")
overview(clean, methods)
print("\nNull ECE and Brier score\n")
means_of(clean, methods)
print("\nAgainst `ce`, Holm's correction for these six and two second stages\n")
verdicts(clean, [(method, "ce") for method in methods[1:]])
print("\nFeDLaS against what it smooths\n")
verdicts(clean, [("fedlas_ls", "ls"), ("fedlas_mbls", "mbls")])
print("\nCorrupted and other images\n")
elsewhere(crops, methods, list(CELLS))
print("\nCalibrators against one temperature, NLL\n")
against_ts(clean, methods, ["ets", "smart", "svs", "vs", "dirichlet"])

print("\n# Parts of FeDLaS\n")
before_and_after(
    parts[parts["against"] == "ls"]
    .set_index(["method", "calibrator", "metric"])["mean"]
    .sort_index(),
    ["ls", "ls_a025", "fedlas_ls", *variants],
)
print("\nHolm's correction: first row for the eight methods compared with `ls`,")
print("others for the eight questions of the study\n")
verdicts(parts, [("fedlas_ls", against) for against in ("ls", "ls_a025", *variants)])

print("\n# Second stages, ACLS and MDCA: null ECE and Brier score\n")
means_of(clean_second, further)
print("\nAgainst `ce`, Holm's correction for the four methods; the last row is a single test\n")
verdicts(clean_second, [*((method, "ce") for method in further[1:]), ("maccal", "tst")])
print("\nCorrupted images and people\n")
elsewhere(
    second,
    ["ce", "tst", "maccal"],
    ["ECE %, JPEG", "ECE %, severity 5", "NLL, severity 5", "people"],
)
print("\nMaC-Cal over MbLS, a study of its own\n")
means_of(clean_second, ["mbls", "maccal+mbls"], against="mbls")
print()
verdicts(clean_second, [("maccal+mbls", "mbls")])
print()
elsewhere(second, ["mbls", "maccal+mbls"], list(CELLS), against="mbls")

print("\n# ECE before calibration, per cent, beside published numbers\n")
printed = pd.concat(
    [pd.read_csv(PAPERS / paper / "published.csv") for paper in ("fedlas", "maccal")]
)
place = {
    "table": "1",
    "dataset": "cifar10",
    "backbone": "resnet50",
    "calibrator": "none",
    "metric": "ece",
}
printed = printed[(printed.astype({"table": str})[list(place)] == pd.Series(place)).all(axis=1)]
printed = printed.replace({"method": {"ls_005": "ls", "mbls_l01": "mbls", "acls_m10": "acls"}})
columns = {
    f"{name}, Table 1": printed[printed["paper"] == paper].set_index("method")["value"]
    for name, paper in (("FeDLaS", "fedlas"), ("MaC-Cal", "maccal"))
}
ours = {
    "here, fitted (85 %)": clean_fit,
    "here, crops and flips (89 %)": pd.concat(
        [clean, clean_second[clean_second["method"] != "ce"]]
    ),
}
for title, frame in ours.items():
    rows = frame.query("against == 'ce' and calibrator == 'none' and metric == 'ece'")
    columns[title] = 100 * rows.set_index(rows["method"].astype(str))["mean"]
print(f"| method | {' | '.join(columns)} |")
print("| --- |" + " ---: |" * len(columns))
for method in [*methods[:5], *further[1:3], *methods[5:], *further[3:]]:
    cells = [f"{column[method]:.2f}" if method in column else "" for column in columns.values()]
    print(f"| `{method}` | {' | '.join(cells)} |")

print("\n# The banks\n")


def of_bank(name, metrics, backbone, methods):
    with zipfile.ZipFile(HERE / name) as bank, bank.open(metrics) as file:
        runs = pd.read_parquet(file).query(f"split == 'test' and backbone == '{backbone}'")
    place = ["method", "calibrator"]
    means = runs.pivot_table(
        index=place, columns="metric", values="value", aggfunc="mean", observed=True
    )
    before_and_after(means, methods)


of_bank("bank.zip", "cifar10_bank/metrics.parquet", "airbench24", ["ce", "ls", "fedlas_ls"])
print("\nNetworks at 93 %\n")
at_93 = ["ce", "ls", "mbls", "fedlas_ls", "maccal"]
of_bank("bank_93.zip", "bank_93/metrics.parquet", "airbench64", at_93)
print("\nNetworks that fit their training images\n")
fitted_in_bank = ["ce", "ls", "ls_a025", "fedlas_ls"]
of_bank("bank_fit.zip", "bank_fit/metrics.parquet", "resnet9", fitted_in_bank)

print("\nAll calibrators of logits on its airbench24: debiased ECE of `ce`, NLL against `ts`")
print("with Holm's correction for the twenty on three methods\n")
every = pd.read_parquet(HERE / "calibrators.parquet")
answers = every.query("against == 'ts' and metric == 'nll'")
answers = answers.set_index(["calibrator", "method"]).sort_index()
errors = every.query("against == 'ce' and method == 'ce' and metric == 'ece_debiased'")
errors = errors.set_index("calibrator")["mean"]
print("| calibrator | debiased ECE % | `ce` | `ls` | `fedlas_ls` |")
print("| --- | ---: | --- | --- | --- |")
means = answers["difference"].groupby(level="calibrator", observed=True).mean()
for calibrator in means.sort_values().index:
    rows = [answers.loc[(calibrator, method)] for method in ("ce", "ls", "fedlas_ls")]
    cells = [f"{row['difference']:+.4f}, {row['verdict']}" for row in rows]
    print(f"| `{calibrator}` | {100 * errors[calibrator]:.2f} | {' | '.join(cells)} |")

print("\nThe same by verdicts, smallest and largest difference of the three methods\n")
print("| calibrators | NLL, difference | verdicts |")
print("| --- | --- | --- |")
own = answers.assign(verdict=answers["verdict"].astype(str)).groupby(level="calibrator")
words = own["verdict"].agg(lambda of: " or ".join(sorted(set(of))))
for word, names in words.groupby(words).groups.items():
    differences = answers["difference"].loc[list(names)]
    listed = " ".join(f"`{name}`" for name in means.sort_values().index if name in names)
    print(f"| {listed} | {differences.min():+.4f} to {differences.max():+.4f} | {word} |")

print("\nairbench64, three seeds\n")
wide = pd.read_parquet(HERE / "wide.parquet")
means = wide.query("against == 'ce'")
means = means.pivot_table(index="calibrator", columns="metric", values="mean", observed=True)
answers = wide.query("against == 'ts' and metric == 'nll'").set_index("calibrator")
print(
    "| calibrator | accuracy % | ECE % | its null % | debiased ECE % | NLL | Brier "
    "| NLL, against `ts` |"
)
print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
for calibrator, row in means.sort_values("nll").iterrows():
    answer = verdict(answers.loc[calibrator]) if calibrator in answers.index else ""
    print(
        f"| `{calibrator}` | {100 * row['accuracy']:.2f} | {100 * row['ece']:.2f} "
        f"| {100 * row['ece_null']:.2f} | {100 * row['ece_debiased']:.2f} | {row['nll']:.4f} "
        f"| {row['brier']:.4f} | {answer} |"
    )
