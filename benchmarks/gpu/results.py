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

from calgrid.storage.layout import RunKey, logits_file
from calgrid.storage.records import HISTORY, PREDICT, TRAIN

METHODS = ("ce", "ls", "mbls", "fedlas_ls", "maccal", "fl3", "mixup")
SEEDS = (1, 2, 3)


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
    runs.prepare()
    keys = [runs.key(protocol, backbone, method, seed) for seed in SEEDS for method in METHODS]
    took: dict[str, float] = {}

    def one(key: RunKey) -> None:
        longest = max(took.values(), default=0.0)
        if (runs.predicted(key) / PREDICT).exists() or time.monotonic() + longest > end:
            return
        begin = time.monotonic()
        runs.calgrid(*runs.train_command(key))
        runs.calgrid(*runs.predict_command(key))
        took[key.path] = time.monotonic() - begin
        print(f"{key.path}: {took[key.path]:.0f} s", flush=True)

    for seed in SEEDS:
        first, *others = (key for key in keys if key.seed == seed)
        one(first)  # `ce`, from which maccal starts
        with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
            list(pool.map(one, others))
    done = [key for key in keys if (runs.predicted(key) / PREDICT).exists()]
    options.out.mkdir(parents=True, exist_ok=True)
    with tarfile.open(options.out / "runs.tar.gz", "w:gz") as archive:
        for key in done:
            for name in (TRAIN, HISTORY):
                archive.add(runs.trained(key) / name, f"{key.path}/{name}")
            for name in (PREDICT, *(logits_file("last", split) for split in ("val", "test"))):
                archive.add(runs.predicted(key) / name, f"{key.path}/{name}")
    keep(options, "results", {"seconds": took, "runs": [key.path for key in done]})


if __name__ == "__main__":
    main()
