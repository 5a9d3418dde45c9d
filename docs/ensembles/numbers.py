"""Write the two Parquet files on ensembles of the CIFAR-10 bank from the finished study.

python docs/ensembles/numbers.py
"""

from pathlib import Path

import pandas as pd

import calgrid

HERE = Path(__file__).parent
NUMBERS = ["n_seeds", "difference", "ci_low", "ci_high", "detectable", "verdict"]

study = calgrid.load_study("results/cifar10_ensembles")
pairs = [("ens5(ls)", "ens5(ce)"), ("ens5(fedlas_ls)", "ens5(ce)"), ("ens5(ce)", "ce")]
for method in ("ce", "ls", "fedlas_ls"):
    pooled = f"ens5({method})"
    pairs += [(f"ens5({method},logit)", pooled), (f"ens5({method},ts)", pooled)]
answers = [
    study.compare(*pair, calibrator, ["nll"]) for pair in pairs for calibrator in ("none", "ts")
]
columns = ["method", "against", "calibrator", "metric", *NUMBERS]
pd.concat(answers)[columns].to_parquet(HERE / "cifar10_comparisons.parquet")
means = study.summary.query("split == 'test' and metric in ['accuracy', 'brier', 'ece', 'nll']")
columns = ["backbone", "method", "calibrator", "metric", "mean", "n_seeds"]
means[columns].to_parquet(HERE / "cifar10.parquet")
