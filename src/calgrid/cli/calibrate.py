"""``calgrid calibrate``: fit or rank calibrators on one logits file, apply one to another."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from calgrid.calibrators import Calibrator, build_calibrator, load_calibrator
from calgrid.calibrators.base import WORSE
from calgrid.class_names import say_unnamed
from calgrid.cli.files import (
    ALL,
    as_json,
    calibrator_names,
    estimates,
    interval_text,
    left_out_lines,
    read,
    says_and_right,
    uncertain_text,
)
from calgrid.cli.reliability import check_figure, lines_of, write_figure
from calgrid.cli.terminal import Arguments, write, write_json
from calgrid.components import registry
from calgrid.errors import ConfigError, DataError, refuse
from calgrid.logits.ranking import NONE, Ranked, choice, rank_calibrators, reference, usable
from calgrid.logits.reading import predicted, read_head_arrays, share_rows
from calgrid.logits.symptoms import impossible, of_labels, of_scores, symptoms
from calgrid.logits.writing import write_csv
from calgrid.metrics import Output
from calgrid.metrics.intervals import Estimate
from calgrid.progress import WARNINGS, log, warn
from calgrid.statistics.verdicts import NO_VERDICT
from calgrid.storage.arrays import Head
from calgrid.storage.atomic import require_writable
from calgrid.storage.logits import NO_LABEL, Logits, write_logits

#: mark of a calibrator with a fit that did not converge
UNCONVERGED = "*"
#: default metric of a ranking
NLL = "nll"
#: smallest log-probability in a calibrated file: finite in float32
LOG_FLOOR = -1e4
#: end of the name of a calibrated file that is no Parquet file
CSV = ".csv"
#: metrics before and after
SHOWN = ("accuracy", "nll", "brier", "ece_debiased", "ece", "ece_null", "aece_eq", "cece", "mce")
#: metrics shown in a ranking beside the ranking metric
RANKING_SHOWN = ("nll", "brier", "ece_debiased", "ece", "ece_null", "accuracy")


def calibrate(options: Arguments) -> None:
    """Fit (or load) a calibrator, apply it, and print metrics before and after; several are ranked
    first.
    """
    names = calibrator_names(options.calibrator or "")
    is_ranking = len(names) > 1 or ALL in names
    _check_options(options, names, is_ranking)
    content: dict[str, object] = {}
    calibrator = None
    if options.load:
        calibrator = _loaded(options, names)
        target = _target(options, calibrator.class_names, calibrator.n_classes)
    else:
        data = read(options.fit, options.fit_labels, options)
        _warn_of_calibrated(options.fit, data)
        target = _target(options, data.metadata.get("classes"), data.logits.shape[1])
        # a fit needs a row of each class
        warn(
            *of_labels(data, options.fit, fewest=0),
            *of_scores(data, predicted(data), options.fit),
        )
        if target is not None and _is_labelled(target) and share_rows(data, target):
            warn(
                f"--fit and --apply share rows ({options.fit}, {options.apply}): metrics on rows "
                "used for fitting are optimistic; apply the calibrator to other rows."
            )
        head = read_head_arrays(options.head) if options.head else None
        chosen = names[0]
        if is_ranking:
            ranking, refused = _rank(options, names, data, head, target)
            chosen = choice(ranking).id
            content |= _ranking_content(ranking, refused)
            if not options.json:
                write(_ranking_text(ranking, refused, len(data), options))
        if target is not None or options.save:
            calibrator = _fitted(options, chosen, data, head)
    if calibrator is not None:
        history = calibrator.fit_history
        warn(*_not_said([f"{calibrator.id}: {warning}" for warning in history["warnings"]]))
        content |= {"calibrator": calibrator.id, "converged": history.get("converged", True)}
        if target is not None:
            content["metrics"] = _apply(options, calibrator, target)
        else:
            require_writable(options.save)
            calibrator.save(options.save)
            if not options.json:
                write(f"{options.save} has {calibrator}; apply it with --load.\n")
    if options.json:
        write_json({**content, "warnings": WARNINGS})


def _check_options(options: Arguments, names: Sequence[str], ranking: bool) -> None:
    """Raise ConfigError for missing or contradictory options, before anything is read or fitted;
    ``ranking``: whether several calibrators are named, which are ranked.
    """
    check_figure(options.plot)
    mistakes = [
        (
            options.fit_labels and not options.fit,
            "--fit-labels has no effect without --fit; give both or remove it.",
        ),
        (
            options.apply_labels and not options.apply,
            "--apply-labels has no effect without --apply; give both or remove it.",
        ),
        (
            bool(options.fit) == bool(options.load),
            "Give either --fit (a labelled file) or --load (a saved calibrator).",
        ),
        (
            options.fit and not names,
            "Give --calibrator, the calibrator to fit, or all (see: calgrid list calibrators).",
        ),
        (
            options.out and options.out.suffix.lower() not in (".parquet", CSV),
            f"--out {options.out}: the calibrated file is Parquet or CSV; give it a name that ends "
            f"in .parquet or .csv.",
        ),
        (
            not options.apply and not (ranking or (options.fit and options.save)),
            "Give --apply, the file to calibrate, or --fit and --save, a file for the calibrator.",
        ),
        (
            not options.apply and (options.out or options.plot),
            "--out and --plot need --apply, the file to calibrate.",
        ),
        (
            options.rank_by and not ranking,
            "--rank-by needs several calibrators; name them in --calibrator, or all.",
        ),
        (
            options.keeps_classes and not ranking,
            "--keeps-classes needs several calibrators; name them in --calibrator, or all.",
        ),
        (
            options.set and options.load,
            "--set has no effect on a saved calibrator; remove --set or --load.",
        ),
        (
            options.set and ranking,
            "--set applies to a single calibrator; name one in --calibrator.",
        ),
    ]
    outputs = {"--save": options.save, "--out": options.out, "--plot": options.plot}
    folders = [
        (path and path.is_dir(), f"{option} {path} is a folder; give the name of a file.")
        for option, path in outputs.items()
    ]
    refuse(*folders, *mistakes)


# fit
# --------------------------------------------------------------------------------------------------


def _target(
    options: Arguments, classes: Sequence[str] | None, n_classes: int | None
) -> Logits | None:
    """The file to calibrate, with columns in the order of the classes of the fit; labels may be
    absent if its probabilities are written.
    """
    if not options.apply:
        return None
    labelled = options.apply_labels is not None
    target = read(options.apply, options.apply_labels, options, classes, labelled)
    _warn_of_calibrated(options.apply, target)
    fitted = options.fit or options.load
    if (width := target.logits.shape[1]) != n_classes:
        raise DataError(
            f"{options.apply} has {width} classes, but {fitted} has {n_classes}; use the same "
            "model."
        )
    if not classes and "classes" in target.metadata:
        say_unnamed("columns", fitted, options.apply, target.metadata["classes"])
    if not _is_labelled(target) and (options.plot or not options.out):
        raise ConfigError(
            f"{options.apply} has no labels, so there are no metrics and no figure; give --out, a "
            f"file for its probabilities, without --plot, or the name of the labels, --label-key."
        )
    return target


def _warn_of_calibrated(path: Path, data: Logits) -> None:
    """Warn of a file written by :func:`calibrate`."""
    if "calibrator" in data.metadata:
        warn(
            f"{path} has the probabilities of '{data.metadata['calibrator']}', which are "
            "calibrated again; give the logits of the network."
        )


def _not_said(warnings: Sequence[str]) -> list[str]:
    """Return warnings whose sentence no other file or calibrator has caused yet."""
    said = {warning.partition(": ")[2] for warning in WARNINGS}
    return [warning for warning in warnings if warning.partition(": ")[2] not in said]


def _is_labelled(data: Logits) -> bool:
    return bool((data.label != NO_LABEL).any())


def _values(data: Logits, options: Arguments) -> tuple[np.ndarray, str]:
    """Logits or probabilities as in the file, (N, K), or (N,) of class 1 of two; and their kind."""
    values, kind = data.probabilities, "probabilities"
    if values is None:
        values, kind = data.logits, "logits"
    return values[:, 1] if options.binary else values, kind


def _loaded(options: Arguments, names: Sequence[str]) -> Calibrator:
    """The saved calibrator; its kind and binary form become those of the file to calibrate."""
    calibrator = load_calibrator(options.load)
    options.kind = options.kind or calibrator.kind
    options.binary = options.binary or calibrator.binary
    known, given = calibrator.class_names or (), tuple(options.classes or ())
    refuse(
        (
            given and known and given != known,
            f"--classes {','.join(given)}: the calibrator was fitted on the classes "
            f"{','.join(known)}; remove --classes, and name the columns.",
        ),
        (
            names not in ([], [calibrator.id]),
            f"--load {options.load} is a fitted '{calibrator.id}', not '{options.calibrator}'; "
            f"correct one of the two.",
        ),
    )
    return calibrator


def _fitted(options: Arguments, id: str, data: Logits, head: Head | None) -> Calibrator:
    given: dict[str, Any] = {}
    for text in options.set:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set {text}: write NAME=VALUE.")
        try:
            given[name] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ConfigError(
                f"--set {text}: the value is not valid YAML; write a number, a text or a list."
            ) from None
    component = registry.describe("calibrator", id, "--calibrator")
    overrides = component.resolve(given, where="--set")
    seed = overrides["seed"] if "seed" in given else options.seed
    values, kind = _values(data, options)
    names = data.metadata.get("classes")
    return build_calibrator(id, **{**overrides, "seed": seed}).fit(
        values, data.label, data.features, head, kind=kind, class_names=names
    )


# rank
# --------------------------------------------------------------------------------------------------


def _rank(
    options: Arguments,
    names: Sequence[str],
    data: Logits,
    head: Head | None,
    target: Logits | None,
) -> tuple[list[Ranked], dict[str, str]]:
    """Rank calibrators by cross-validation on the fit data; also return what failed, and why."""
    features = data.features if target is None or target.features is not None else None
    left_out: dict[str, str] = {}
    if list(names) == [ALL]:
        names, left_out = usable(data.logits.shape[1], features, head)
        if data.features is not None and features is None:
            log(f"{options.apply} has no features: calibrators that need them are left out.")
    for name in names:
        component = registry.describe("calibrator", name, "--calibrator")
        if options.keeps_classes and not component.info["keeps_argmax"]:
            left_out[name] = "may change predicted classes"
    has_logits = data.probabilities is None
    ranking, refused = rank_calibrators(
        data.logits if has_logits else data.probabilities,
        data.label,
        features,
        head,
        candidates=[name for name in names if name not in left_out],
        kind="logits" if has_logits else "probabilities",
        rank_by=options.rank_by or NLL,
        folds=options.folds,
        seed=options.seed,
        n_bins=options.bins,
        n_resamples=options.bootstrap,
    )
    return ranking, {**refused, **left_out}


def _ranking_content(ranking: Sequence[Ranked], refused: Mapping[str, str]) -> dict[str, object]:
    """Return a ranking for JSON, the best first."""
    entries = [
        {
            "calibrator": entry.id,
            **as_json({"difference": entry.difference}),
            "verdict": entry.verdict,
            "changed": entry.changed,
            "converged": entry.converged,
            "seconds": entry.seconds,
            "metrics": as_json(entry.scores),
        }
        for entry in ranking
    ]
    facts = {"reference": reference(ranking).id, "choice": choice(ranking).id}
    return {"ranking": entries, **facts, "left_out": dict(refused)}


def _ranking_text(
    ranking: Sequence[Ranked], refused: Mapping[str, str], rows: int, options: Arguments
) -> str:
    """Return the ranking as two tables of 80 columns, the best first: differences to the reference,
    and further metrics; with the choice and calibrators left out.
    """
    rank_by = options.rank_by or NLL
    marked = [entry.id + ("" if entry.converged else UNCONVERGED) for entry in ranking]
    width = max(map(len, marked))
    others = [name for name in RANKING_SHOWN if name != rank_by]
    lines = [
        _choice_text(ranking, rank_by),
        f"Ranked by {rank_by} in {options.folds}-fold cross-validation on the {rows} rows of the "
        f"fit data.",
        f"{rank_by:>{width + 13}s}{'difference [interval]':>30s}{'changed':>8s}{'s/fit':>8s}",
    ]
    further = [" " * width + "".join(f"{name:>{_width(name)}s}" for name in others)]
    for place, (entry, shown_name) in enumerate(zip(ranking, marked, strict=True), start=1):
        difference = f"{entry.difference.value:+.5f} {interval_text(entry.difference, '+'):>20s}"
        lines.append(
            f"{place:>2d}  {shown_name:{width}s}{entry.scores[rank_by].value:>9.5f}"
            f"{difference if entry.verdict else 'reference':>30s}{100 * entry.changed:>7.2f}%"
            f"{entry.seconds:>8.3f}"
        )
        scores = (f"{entry.scores[name].value:>{_width(name)}.5f}" for name in others)
        further.append(f"{shown_name:{width}s}{''.join(scores)}")
    lines += ["", *further, ""]
    if not all(entry.converged for entry in ranking):
        lines.append(f"{UNCONVERGED} a fit stopped before it converged; its scores may be better.")
    lines.append(
        "changed: share of rows whose predicted class changes; s/fit: processor seconds of a fit."
    )
    lines += left_out_lines(refused)
    return "\n".join(lines) + "\n\n"


def _width(metric: str) -> int:
    """Width of a metric's column in a ranking: six columns and the longest name take 80."""
    return max(len(metric) + 1, 9)


def _choice_text(ranking: Sequence[Ranked], rank_by: str) -> str:
    """Choice of the calibrator, with the reason."""
    against, chosen, best = reference(ranking), choice(ranking), ranking[0]
    named = "no calibration" if chosen.id == NONE else chosen.id
    use = f"Use {named} ({rank_by} {chosen.scores[rank_by].value:.5f})"
    if chosen is not against:
        harm = f": {against.id} makes it worse" if chosen.id == NONE else ""
        return (
            f"{use}{harm}; it is significantly better than {against.id}: {rank_by} "
            f"{chosen.difference.value:+.5f} {interval_text(chosen.difference, '+')} (Holm's "
            "correction)."
        )
    if best is against:
        return f"{use}, the best."
    if best.verdict == NO_VERDICT:
        return f"{use}, as no test was made of {best.id}, the best here."
    text = (
        f"{use}, the simplest: {best.id}, the best here, is not significantly better (Holm's "
        "correction)"
    )
    if not np.isnan(best.detectable):
        text += f"; a difference of {best.detectable:.5f} would have been found"
    return f"{text}."


# apply
# --------------------------------------------------------------------------------------------------


def _apply(options: Arguments, calibrator: Calibrator, target: Logits) -> dict[str, object]:
    """Calibrate a file, and write and print the results; return the metrics for ``--json``."""
    columns = {"none": predicted(target)}
    if calibrator.id != "none":
        values, kind = _values(target, options)
        columns[calibrator.id] = calibrator.predict_output(values, target.features, kind=kind)
    scores: dict[str, dict[str, Estimate]] = {}
    if _is_labelled(target):
        warn(*_not_said(symptoms(target, columns["none"], options.apply)))
        if calibrator.id != "none":
            calibrated = columns[calibrator.id]
            warn(*impossible(calibrated, target.label, calibrator.id))
        for name, output in columns.items():
            scores[name] = estimates(output, target.label, options)
    _write(options, calibrator, target, columns, scores)
    if not scores:
        log(f"{options.apply} has no labels: no metrics. {options.out} has its probabilities.")
        return {}
    if not options.json:
        if calibrator.id != "none" and options.bootstrap:
            write(_verdict_text(options, columns, target.label, scores))
        said = [f"{_when(name)}: {says_and_right(o, target.label)}" for name, o in columns.items()]
        write(f"{'; '.join(said)}\n{_comparison_text(scores)}")
        if options.bootstrap:
            write(uncertain_text({name: scores[calibrator.id][name] for name in SHOWN}))
    nll_before, nll_after = scores["none"]["nll"].value, scores[calibrator.id]["nll"].value
    if nll_after > WORSE * nll_before:
        times = nll_after / nll_before
        warn(
            f"{calibrator.id} has {times:.1f} times the NLL of the uncalibrated logits on the "
            "calibrated file: it overfits, or the two files come from different models or data."
        )
    return {name: as_json(values) for name, values in scores.items()}


def _write(
    options: Arguments,
    calibrator: Calibrator,
    target: Logits,
    columns: Mapping[str, Output],
    scores: Mapping[str, Mapping[str, Estimate]],
) -> None:
    """Write the files named by the options, only if all are writable."""
    for path in (options.save, options.out, options.plot):
        if path:
            require_writable(path)
    if options.save:
        calibrator.save(options.save)
    if options.out:
        _write_calibrated(options.out, calibrator, target, columns[calibrator.id])
    if options.plot and scores:
        parts = {
            _when(name): (output.probs, target.label, lines_of(output, target.label, scores[name]))
            for name, output in columns.items()
        }
        write_figure(options.plot, parts, options.bins)


def _write_calibrated(path: Path, calibrator: Calibrator, target: Logits, output: Output) -> None:
    """Write calibrated probabilities as Parquet, or for people as CSV."""
    classes = calibrator.class_names or target.metadata.get("classes")
    if path.suffix.lower() == CSV:
        write_csv(path, target.index, target.label, output.probs, classes)
        return
    log_probs = np.maximum(output.log_probs, LOG_FLOOR).astype(np.float32)
    metadata = {**target.metadata, "calibrator": calibrator.id, "n_classes": log_probs.shape[1]}
    if classes:
        metadata["classes"] = list(classes)
    calibrated = Logits(
        target.index,
        target.label,
        log_probs,
        distribution=target.distribution,
        probabilities=output.probs,
        metadata=metadata,
    )
    write_logits(path, calibrated)


def _verdict_text(
    options: Arguments,
    columns: Mapping[str, Output],
    labels: np.ndarray,
    scores: Mapping[str, Mapping[str, Estimate]],
) -> str:
    """Change of the NLL by a calibrator with its verdict, and of other metrics."""
    from calgrid.statistics import paired_bootstrap
    from calgrid.statistics.verdicts import BETTER, EQUIVALENT, FEWEST_TEST, FOUND, TIE, WORSE

    bare, id = columns
    row, error = paired_bootstrap(
        {id: [columns[id]], bare: [columns[bare]]},
        labels,
        metrics=[NLL, "squared_ce"],
        n_resamples=options.bootstrap,
        n_bins=options.bins,
        of_runs=True,
    ).to_dict("records")
    words = {
        BETTER: "is better than",
        WORSE: "is worse than",
        EQUIVALENT: "is equivalent to",
        TIE: "ties with",
        NO_VERDICT: "cannot be compared with",
    }
    interval = ""
    if row["verdict"] != NO_VERDICT:
        low, high = row["ci_low"], row["ci_high"]
        interval = f", paired interval of the difference [{low:+.4f}, {high:+.4f}]"
    if row["verdict"] == TIE:
        interval += f"; a difference of {row['detectable']:.4f} nats would have been found"
    few = ""
    if len(labels) < FEWEST_TEST:
        few = f", which has too few rows ({len(labels)}; at least {FEWEST_TEST} are needed)"
    before, after = (f"{100 * scores[name]['accuracy'].value:.2f} %" for name in (bare, id))
    more = "" if before == after else f" Accuracy: {before} to {after}."
    if error["verdict"] in FOUND:
        ends = [f"{100 * scores[name]['ece_debiased'].value:.2f} %" for name in (bare, id)]
        more += f" The calibration error is {error['verdict']}: debiased ECE {' to '.join(ends)}."
    return (
        f"{id} {words[row['verdict']]} no calibration on {options.apply}{few}: NLL "
        f"{scores[bare][NLL].value:.4f} to {scores[id][NLL].value:.4f}{interval}.{more}\n"
    )


def _when(name: str) -> str:
    return "before" if name == "none" else f"after {name}"


def _comparison_text(scores: Mapping[str, Mapping[str, Estimate]]) -> str:
    """Return a table with one column per calibrator: two columns take a width of 80."""
    lines = [f"{'':14s}" + "".join(f"{name:>33s}" for name in scores)]
    for metric in SHOWN:
        cells = [
            f"{values[metric].value:>11.5f} {interval_text(values[metric]):>21s}"
            for values in scores.values()
        ]
        lines.append(f"{metric:14s}{''.join(cells)}".rstrip())
    return "\n".join(lines) + "\n"
