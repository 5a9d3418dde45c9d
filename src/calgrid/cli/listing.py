"""``calgrid list``, ``schema`` and ``check``: components, keys of a configuration, and its runs."""

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from calgrid.backbones.catalogue import describe, timm_names
from calgrid.class_names import in_order_of_numbers, shown_names
from calgrid.cli.commands import LISTED_KINDS as KINDS
from calgrid.cli.study_of import read_study
from calgrid.cli.terminal import Arguments, write, write_json
from calgrid.components import plugins, registry
from calgrid.errors import ConfigError, unknown_id, visible
from calgrid.plan.plan import Plan
from calgrid.plan.resources import gpu_here
from calgrid.progress import warn
from calgrid.study.home import home
from calgrid.study.model import FORMS, Config, External, OfStudy
from calgrid.study.protocols import ProtocolCatalog
from calgrid.study.runs import ENSEMBLES, applies, registered_methods
from calgrid.study.slow_checks import check_all
from calgrid.study.study import Study
from calgrid.study.yaml_files import read_mapping
from calgrid.training.protocol import CHECKPOINT_EPOCHS, TrainingProtocol
from calgrid.training.schedule import epoch_batches

#: what is listed of a component: ``id``, ``summary``, ``source``, options and facts
Entry = dict[str, Any]
#: argument of ``list`` -> kinds of the registry
LISTED = {
    "methods": registry.METHODS,
    **{package: (kind,) for kind, package in registry.KINDS.items()},
}
SINGULAR = {
    "methods": "method",
    "protocols": "protocol",
    "conformal": "conformal score or metric of sets",
    "ensembles": "ensemble",
    "checkpoints": "checkpoint",
    "external": "source of predictions",
    **{package: kind for kind, package in registry.KINDS.items()},
}
#: source of external predictions -> its page
EXTERNAL_PAGES = {
    "files": "your_logits",
    "run": "your_logits",
    "bank": "sharing",
    "calarena": "calarena",
}
#: classes of a user's images that are listed; fewer images of a class are warned of
SHOWN_CLASSES, FEW_IMAGES = 20, 10
#: fewest training steps of an epoch, or else of all epochs, without advice to use smaller batches
FEWEST_STEPS, FEWEST_IN_ALL = 10, 300
#: least steps of a training, as a multiple of the span of an exponential mean: then the first
#: weights are less than 1 % of the mean
SPANS = 5
#: fewest seeds without advice to use more
FEWEST_SEEDS = 5
#: kinds that a study may define itself, with the hint for an unknown name
OF_STUDIES = {"calibrators", "datasets", "methods", "probes", "protocols"}
OF_CALGRID = "calgrid (names that a study defines are in its file alone)"
#: parts of an entry that are printed as lists, and their titles
PARTS = {"defaults": "options", "dataset_defaults": "options on", "facts": "facts"}


def list_kind(options: Arguments) -> None:
    """Print the kinds, the components of a kind, one line each, or all details of those with an
    identifier.
    """
    entries: Sequence[str | Entry] = KINDS
    lines = list(KINDS)
    if options.kind is not None:
        _warn_of_broken(LISTED.get(options.kind, () if options.kind in KINDS else registry.KINDS))
    if options.kind in KINDS and options.id is None:
        entries = found = list(_entries(options.kind))
        width = max(len(entry["id"]) for entry in found) + 2
        lines = []
        for entry in found:
            plugin = f" (plugin: {entry['file']})" if "file" in entry else ""
            lines.append(f"{entry['id']:{width}s}{entry['summary']}{plugin}")
    elif options.kind is not None:
        entries, lines = _named(options.kind, options.id)
    if options.json:
        write_json(entries)
    else:
        write("\n".join(lines) + "\n")


def _named(kind: str, id: str | None) -> tuple[list[Entry], list[str]]:
    """Entries of all components with an identifier, of one kind if given, and their lines."""
    if id is not None and kind not in KINDS:
        raise unknown_id("kind", kind, KINDS)
    kinds = [kind]
    if id is None:
        id = kind
        kinds = [name for name in KINDS if name != "methods"]  # these are losses and procedures
    if id.startswith("timm/") and "backbones" in kinds:
        model = id.removeprefix("timm/").partition(".")[0]
        weights = sorted(timm_names().get(model, ()))
        facts = {"id": id, "summary": "A model of timm.", "facts": {"weights": weights}}
        entry = {**_entry(describe(id)), **facts}
        return [entry], [_sheet(entry, "backbone")]
    if "calibrators" in kinds:
        id = registry.calibrator_id(id)
    known = list(KINDS) if len(kinds) > 1 else []
    named: list[Entry] = []
    sheets: list[str] = []
    for name in kinds:
        for entry in _entries(name):
            known.append(entry["id"])
            if entry["id"] == id:
                named.append(entry)
                sheets += [*([""] if sheets else []), _sheet(entry, SINGULAR[name])]
    if not named:
        if len(kinds) > 1:
            raise unknown_id("component", id, known, OF_CALGRID, "calgrid list KIND")
        raise unknown_id(SINGULAR[kind], id, known, OF_CALGRID if kind in OF_STUDIES else "")
    return named, sheets


def _entries(kind: str) -> Iterable[Entry]:
    others: dict[str, Callable[[], Iterable[Entry]]] = {
        "metrics": _metrics,
        "protocols": _protocols,
        "conformal": _conformal,
        "external": _external,
        "ensembles": lambda: _described(ENSEMBLES, "docs/ensembles.md"),
        "checkpoints": lambda: _described(CHECKPOINT_EPOCHS, "docs/training.md"),
    }
    if kind in others:
        return others[kind]()
    if kind == "methods":
        return map(_entry, registered_methods().values())
    (of_registry,) = LISTED[kind]
    return map(_entry, registry.descriptions(of_registry).values())


def _metrics() -> Iterator[Entry]:
    from calgrid.components.metrics import find_metric, metric_names
    from calgrid.metrics import METRICS

    for name in metric_names():
        try:
            metric = find_metric(name)
        except ConfigError as error:
            warn(str(error))
            continue
        better = {True: "lower", False: "higher", None: "neither"}[metric.lower_is_better]
        file = {}
        if name not in METRICS:
            file["file"] = plugins.shown(registry.describe("metric", name).module)
        yield {
            **file,
            "id": name,
            "summary": _plain(metric.summary),
            "source": metric.source,
            "facts": {"better": better, "of": metric.kind},
        }


def _protocols() -> Iterator[Entry]:
    for name, path in ProtocolCatalog(home(), {}).files.items():
        options = dict(read_mapping(path, f"The protocol file {path}"))
        yield {
            "id": name,
            "summary": options.pop("description"),
            "source": f"config/protocols/{path.name}",
            "defaults": options,
        }


def _conformal() -> Iterator[Entry]:
    from calgrid.metrics.conformal import SCORES, SET_METRICS

    for score in SCORES.values():
        facts = {"penalties": list(score.penalties)} if score.penalties else {}
        yield {"id": score.id, "summary": score.summary, "source": score.source, "facts": facts}
    yield from _described(SET_METRICS, "docs/conformal.md")


def _described(summaries: Mapping[str, str], page: str) -> Iterator[Entry]:
    """Names with their summaries, explained in one of our pages."""
    for name, summary in summaries.items():
        yield {"id": name, "summary": summary, "source": page}


def _external() -> Iterator[Entry]:
    """Forms of the entries of ``external``, by their key ``base`` or ``run``."""
    for name, form in {"files": External, "run": OfStudy, **FORMS}.items():
        yield {
            "id": name,
            "summary": str(form.__doc__).partition("\n")[0],
            "source": f"docs/{EXTERNAL_PAGES[name]}.md",
            "facts": {key: field.description for key, field in form.model_fields.items()},
        }


def _warn_of_broken(kinds: Iterable[str]) -> None:
    """Warn of plugins and files of these kinds that are ignored as invalid components."""
    warn(*itertools.chain(plugins.problems(), *map(registry.broken, kinds)))


#: a role or literal of reStructuredText, with its visible part
MARKED = re.compile(r"(?::\w+:)?(`{1,2})~?(.+?)\1")


def _plain(text: str) -> str:
    """Text of a docstring without the marks of reStructuredText."""
    return MARKED.sub(r"\2", text)


def _entry(component: registry.Description) -> Entry:
    """Listed properties of a component; with ``file`` if it belongs to a plugin."""
    facts = dict(component.info)
    ours = component.origin == plugins.PACKAGE
    file = {} if ours else {"file": plugins.shown(component.module)}
    ranges = facts.pop("limits", {})
    defaults, meanings = {}, {}
    for name, option in component.options.items():
        defaults[name], meanings[name] = option.default, _plain(option.meaning)
    return {
        **file,
        "id": component.id,
        "summary": _plain(component.summary),
        "source": component.source,
        "defaults": defaults,
        "ranges": dict(ranges),
        "meanings": meanings,
        "dataset_defaults": dict(component.dataset_defaults),
        "facts": facts,
    }


def _sheet(entry: Entry, kind: str) -> str:
    """Return all details of one component, one line each."""
    found = [f"{entry['id']} ({kind})", f"  {entry['summary']}", f"  source: {entry['source']}"]
    if "file" in entry:
        found.append(f"  plugin: {entry['file']}")
    ranges, meanings = entry.get("ranges", {}), entry.get("meanings", {})
    for part, title in PARTS.items():
        values = entry.get(part, {})
        if not values:
            continue
        found.append(f"  {title}:")
        width = max(map(len, values)) + 2
        for name, value in values.items():
            first, *further = _shown(value)
            if part == "defaults":
                first += f"  (in {ranges[name]})" if name in ranges else ""
                first += f"  {meanings[name]}" if meanings.get(name) else ""
            found.append(f"    {name:{width}s}{first}")
            found += [f"    {'':{width}s}{line}" for line in further]
    return "\n".join(found)


def _shown(value: Any) -> list[str]:
    """Lines of a value."""
    if isinstance(value, Mapping):
        return [f"{name}: {', '.join(_shown(each))}" for name, each in value.items()] or ["none"]
    if isinstance(value, bool):
        return ["yes" if value else "no"]
    if isinstance(value, tuple | list):
        if any(isinstance(each, Mapping) for each in value):
            return [line for each in value for line in _shown(each)]
        return [", ".join(map(str, value)) or "none"]
    return [f"{value:,}" if isinstance(value, int) else str(value)]


def schema(_options: Arguments) -> None:
    """Print the JSON Schema of configurations: keys, types, ranges, defaults and meanings."""
    write_json(Config.model_json_schema())


def check(options: Arguments) -> None:
    """Check a configuration and print its runs with fingerprints."""
    study = read_study(options.study, options.data_root)
    check_all(study)
    plan = Plan(study)
    write(f"study '{study.folder.name}': {plan.counts()}\n")
    _warn_of_broken(registry.KINDS)
    for number, override in enumerate(study.config.overrides):
        if not any(applies(override.match, key) for key in study.trained):
            warn(f"overrides[{number}] matches no run of this study.")
    if study.config.device == "cuda" and not gpu_here():
        warn(
            "'device: cuda' needs a GPU, and this machine has none: snakemake "
            "stops with an error here, and on a cluster each job needs a GPU."
        )
    lines: list[str] = []
    for name in dict.fromkeys(key.dataset for key in study.evaluations):
        lines += _images(study, name)
    _say_steps(study)
    lines += _power(study)
    for key in study.evaluations:
        lines.append(f"  {plan.run_fingerprint(key)}  {key.path}")
    write("\n".join(lines) + "\n")


def _images(study: Study, dataset: str) -> Iterator[str]:
    """Images of each split and class of a data set of the user's files; few are warned of."""
    counts = study.datasets.class_counts(dataset)
    if counts is None:
        return
    sizes = ", ".join(f"{role} {sum(of.values()):,}" for role, of in counts.items())
    yield f"{dataset}: {sizes} images; {len(counts['train'])} classes"
    for name, of_train in list(counts["train"].items())[:SHOWN_CLASSES]:
        yield f"  {visible(name)}: {of_train:,}, {counts['val'][name]:,}, {counts['test'][name]:,}"
    if len(counts["train"]) > SHOWN_CLASSES:
        yield f"  and {len(counts['train']) - SHOWN_CLASSES} more classes"
    names = study.datasets.class_names(dataset) or ()
    numbers = in_order_of_numbers(names)
    if numbers and study.datasets.options[dataset]["classes"] is None:
        warn(
            f"the classes of {dataset} are in the order of text "
            f"({shown_names(names)}); for that of numbers give it classes: "
            f"[{shown_names(numbers)}]."
        )
    for role, of_split in counts.items():
        few = [name for name, count in of_split.items() if count < FEW_IMAGES]
        if few:
            warn(
                f"{dataset} has fewer than {FEW_IMAGES} {role} images of {len(few)} "
                f"of {len(of_split)} classes ({shown_names(few)})."
            )


def _say_steps(study: Study) -> None:
    """Warn of epochs with so few training steps that a network hardly moves, and of means that
    still contain its first weights.
    """
    said = set()
    for key, run in study.trained.items():
        sizes, protocol = study.datasets.sizes(key.dataset), run.protocol
        place = key.protocol, key.dataset
        if place in said or sizes is None or not isinstance(protocol, TrainingProtocol):
            continue
        said.add(place)
        images, size = sizes["train"], protocol.batch_size
        steps, _ = epoch_batches(images, protocol)
        if steps < FEWEST_STEPS and steps * protocol.epochs < FEWEST_IN_ALL:
            warn(
                f"protocol '{key.protocol}' on {key.dataset} has few training "
                f"steps, {steps} an epoch ({images:,} images in batches of {size}) and "
                f"{steps * protocol.epochs:,} in all; give it a batch_size of at most "
                f"{max(2, images // FEWEST_STEPS)}, or more epochs."
            )
        span = 1 / (1 - protocol.ema.decay)
        if "ema" in protocol.checkpoints and steps * protocol.epochs < SPANS * span:
            warn(
                f"the checkpoint ema of protocol '{key.protocol}' is a mean over "
                f"about {span:,.0f} steps, and the training on {key.dataset} has "
                f"{steps * protocol.epochs:,}; lower ema.decay."
            )


def _power(study: Study) -> Iterator[str]:
    """Detectable differences with the seeds of the largest setting of a study."""
    baseline = study.config.statistics.baseline
    methods: dict[tuple[str, ...], set[str]] = defaultdict(set)
    seeds: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for key in study.evaluations:
        methods[key[:3]].add(key.method)
        seeds[key[:3]].add(key.seed)
    compared = {place: each - {baseline} for place, each in methods.items() if baseline in each}
    if not any(compared.values()):
        return
    place = max(compared, key=lambda place: len(compared[place]))
    tests, n = len(compared[place]), len(seeds[place])
    where = f"{tests} method{'s' if tests > 1 else ''} against {baseline}"
    if n < 2:
        yield f"verdicts: none with one seed ({where}); use five seeds at least, ten for a paper"
        return
    from calgrid.statistics.verdicts import detectable_deviations

    found = detectable_deviations(n, tests, 1 - study.config.statistics.level)
    advice = "" if n >= FEWEST_SEEDS else "; use five seeds at least, ten for a paper"
    yield (
        f"verdicts: {n} seeds find ({where}, 80 % power) differences of {found:.1f} standard "
        f"deviations over seeds{advice}"
    )
