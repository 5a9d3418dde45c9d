"""``resnet18`` under the protocol ``evening``: as many methods and seeds as fit; logits and
histories are kept.

::

    python benchmarks/gpu/results.py --pictures FOLDER --out OUT --minutes 9

Seeds come first: all methods with seed 1, then with seed 2, then with seed 3. Runs that are done
already are not made again, so that a second call with the same ``--work`` goes on.
"""

import concurrent.futures
import tarfile
import time

from kit import Runs, keep, parser

METHODS = ("ce", "ls", "mbls", "fedlas_ls", "maccal", "fl3", "mixup")
SEEDS = (1, 2, 3)
#: files of a run that are brought back
KEPT = (
    "train.json",
    "history.parquet",
    "predict.json",
    "logits/last/val.parquet",
    "logits/last/test.parquet",
)


def main() -> None:
    """Train and predict until the time is nearly over, then pack what is done."""
    made = parser(__doc__, 9)
    made.add_argument("--at-once", type=int, default=3, help="runs at the same time (3)")
    options = made.parse_args()
    end = time.monotonic() + 60 * options.minutes
    protocol = "evening"
    protocols = {}
    if options.rehearse:
        protocol, flat = "rehearsal", {"crop_padding": 0, "flip": False}
        protocols = {
            "rehearsal": {
                "base": "evening",
                "epochs": 3,
                "augmentation": flat,
                "second_stage": {"epochs": 1},
            }
        }
    backbone = "resnet8" if options.rehearse else "resnet18"
    grid = {
        "protocol": protocol,
        "backbones": [backbone],
        "methods": list(METHODS),
        "seeds": list(SEEDS),
    }
    runs = Runs(options, protocols, [grid], subset=500 if options.rehearse else None)
    took: dict[str, float] = {}

    def one(method: str, seed: int) -> None:
        name, plain = (runs.name(protocol, backbone, each, seed) for each in (method, "ce"))
        longest = max(took.values(), default=0.0)
        if (runs.out(name) / "predict.json").exists() or time.monotonic() + longest > end:
            return
        begin = time.monotonic()
        runs.calgrid(*runs.train_command(name, first=plain if method == "maccal" else ""))
        runs.calgrid(*runs.predict_command(name))
        took[name] = time.monotonic() - begin
        print(f"{name}: {took[name]:.0f} s", flush=True)

    for seed in SEEDS:
        one("ce", seed)  # maccal starts from it
        with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
            list(pool.map(lambda method: one(method, seed), METHODS[1:]))  # noqa: B023  (all are done within the turn)
    folder = runs.folder / "runs"
    done = sorted(path.parent for path in folder.glob("*/*/*/*/*/predict.json"))
    options.out.mkdir(parents=True, exist_ok=True)
    with tarfile.open(options.out / "runs.tar.gz", "w:gz") as archive:
        for run in done:
            for name in KEPT:
                archive.add(run / name, f"{run.relative_to(folder)}/{name}")
    keep(
        options,
        "results",
        {"seconds": took, "runs": [str(run.relative_to(folder)) for run in done]},
    )


if __name__ == "__main__":
    main()
