"""``calgrid pack`` and ``calgrid merge``: results for other laboratories, and of other laboratories."""

import argparse
import sys


def pack(options: argparse.Namespace) -> None:
    """Write an archive and say what it holds."""
    from calgrid.stages.pack import pack as run

    count = run(options.study, options.archive, creators=options.creator, licence=options.licence, cite=options.cite)
    sys.stdout.write(f"{options.archive}: {count} runs, {options.archive.stat().st_size / 1e6:,.1f} MB\n")


def merge(options: argparse.Namespace) -> None:
    """Merge an archive and say what it brought."""
    from calgrid.stages.merge import merge as run
    from calgrid.stages.merge import merge_as

    if options.label:
        about, file, count = merge_as(options.archive, options.label, options.data_root, options.results)
        did = f"{count} entries of 'external' in {file}: give it behind yours, --configfile my_study.yaml {file}"
    else:
        about, new, old = run(options.archive, options.results)
        did = f"{new} runs into {options.results}, {old} were there"
    source = ", ".join([*about["creators"], *filter(None, [about["cite"]])])
    sys.stdout.write(f"{did}\nof {source}, licence {about['licence']}\n")
