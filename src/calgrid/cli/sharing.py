"""``calgrid pack`` and ``calgrid merge``: sharing results between laboratories."""

import argparse
import sys


def pack(options: argparse.Namespace) -> None:
    """Write an archive and print its size."""
    from calgrid.files.pack import pack as run

    count = run(
        options.study,
        options.archive,
        creators=options.creator,
        licence=options.licence,
        cite=options.cite,
    )
    sys.stdout.write(
        f"{options.archive}: {count} runs, {options.archive.stat().st_size / 1e6:,.1f} MB\n"
    )


def merge(options: argparse.Namespace) -> None:
    """Merge an archive and print the number of its runs and their source."""
    from calgrid.files.merge import merge as run
    from calgrid.files.merge import merge_as

    if options.label:
        about, file, count = merge_as(
            options.archive, options.label, options.data_root, options.results
        )
        did = (
            f"{count} entries of 'external' in {file}: add it to your configuration: "
            f"--configfile my_study.yaml {file}"
        )
    else:
        about, new, old = run(options.archive, options.results)
        did = f"{new} runs merged into {options.results}, {old} existed already"
    source = ", ".join([*about["creators"], *filter(None, [about["cite"]])])
    sys.stdout.write(f"{did}\nSource: {source}, licence {about['licence']}\n")
