"""Pages of the documentation that follow from the package, and links that leave the folder docs (a
hook of MkDocs).
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import _notebook
import griffe
import pandas as pd
import yaml
from _formulas import is_formula, typeset
from mkdocs.structure.files import File, Files
from pydantic import BaseModel

from calgrid.components import registry
from calgrid.components.options import Option
from calgrid.metrics import METRICS
from calgrid.study.model import Config
from calgrid.training.protocol import TrainingProtocol

HOME = Path(__file__).parents[1]
#: page of the site -> file of the repository outside docs
OUTSIDE = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changes.md": "CHANGELOG.md",
    **{
        f"benchmarks/{name}.md": f"benchmarks/{name}.md"
        for name in ("README", "speed", "scale", "full_size", "coverage", "choice")
    },
}
#: kind -> title of its page, and whether each component has a page of its own
KINDS = {
    "loss": ("Losses", True),
    "procedure": ("Training procedures", True),
    "calibrator": ("Post-hoc calibrators", True),
    "probe": ("Probes", False),
    "dataset": ("Data sets", False),
    "backbone": ("Backbones", False),
}
#: kind -> where to read which to choose
ADVICE = {
    "loss": "Compared in one study: [eleven methods on photographs](photographs.md).",
    "procedure": "Compared in one study: [eleven methods on photographs](photographs.md).",
    "calibrator": "Advice on the choice: [which calibrator?](which_calibrator.md)",
    "metric": "Which of them decide verdicts: [what is compared](statistics.md#what-is-compared).",
}
#: owner and name of a repository in a source
REPOSITORY = re.compile(r"(?<![\w/.-])([A-Za-z][\w-]+/[\w.-]*[A-Z][\w.-]*|by-liu/\w+)(?=[ ,;]|$)")
API = (
    *("calgrid.integrations.sklearn", "calgrid.integrations.torch", "calgrid.integrations.network"),
    *("calgrid.report.results", "calgrid.logits.writing"),
    *("calgrid.metrics", "calgrid.statistics", "calgrid.calibrators"),
    *("calgrid.logits.ranking", "calgrid.calibrators.base", "calgrid.losses.base"),
    *(
        "calgrid.training.procedure",
        "calgrid.backbones.base",
        "calgrid.datasets.base",
        "calgrid.probes.base",
    ),
)


class Docstrings(griffe.Extension):
    """Docstrings of this project: what stands behind the colon of a parameter is its meaning, not
    its type.
    """

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite a docstring once it is known."""
        if obj.docstring is None:
            return
        obj.docstring.value = _plain(obj.docstring.value)
        types = (
            {each.name: each.annotation for each in obj.parameters}
            if isinstance(obj, griffe.Function)
            else {}
        )
        sections = obj.docstring.parse("numpy", warnings=False)
        for section in sections:
            if section.kind in (
                griffe.DocstringSectionKind.parameters,
                griffe.DocstringSectionKind.attributes,
            ):
                for each in section.value:
                    each.description, each.annotation = _meaning(each), types.get(each.name)
        sections = [_listed(each) for each in sections]
        obj.docstring.__dict__["parsed"] = sections


def on_config(config: Any) -> Any:
    """Add the page of each component to the navigation, below that of its kind."""
    for section in config.nav:
        for pages in section.values():
            if isinstance(pages, list):
                pages[:] = [_with_components(page) for page in pages]
    return config


def _with_components(page: dict[str, str]) -> dict[str, Any]:
    """A page of the navigation, as a section if its components have pages of their own."""
    ((title, path),) = page.items()
    for kind, (_, cards) in KINDS.items():
        folder = registry_folder(kind)
        if cards and path == f"{folder}.md":
            components = [{id: f"{folder}/{id}.md"} for id in registry.descriptions(kind)]
            return {title: [path, *components]}
    return page


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made here."""
    pages = {page: HOME.joinpath(source).read_text() for page, source in OUTSIDE.items()}
    for page, content in {**pages, **dict(_made())}.items():
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links to files of the repository that the site does not have be their names."""
    source = HOME / OUTSIDE.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    pages = {HOME / path: name for name, path in OUTSIDE.items()}

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found.groups("")
        path = Path(source.parent, target).resolve()
        up = "../" * page.file.src_uri.count("/")
        if path.is_relative_to(HOME / "docs") and path.is_file():
            return f"{words}({up}{path.relative_to(HOME / 'docs')}{anchor})"
        if path in pages:
            return f"{words}({up}{pages[path]}{anchor})"
        return words.strip("![]") if path.exists() else found[0]

    return re.sub(r"(!?\[[^\]]*\])\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)", link, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Typeset the formulas of a page."""
    return typeset(html)


def _made() -> Iterator[tuple[str, str]]:
    for kind, (title, cards) in KINDS.items():
        folder = registry_folder(kind)
        specs = registry.descriptions(kind)
        if cards:
            yield f"{folder}.md", _index(kind, title, folder, specs)
            for spec in specs.values():
                yield f"{folder}/{spec.id}.md", _card(spec)
        else:
            yield (
                f"{folder}.md",
                f"# {title}\n\n" + "\n\n".join(_section(spec) for spec in specs.values()),
            )
    for name in ("from_logits", "from_parquet"):
        yield f"{name}.md", _notebook.page(HOME / "docs" / f"{name}.ipynb")
    yield "metrics.md", _metrics()
    yield "protocols.md", _protocols()
    yield "configuration.md", _configuration()
    yield "api.md", "# Python\n\n" + "\n\n".join(f"::: {module}" for module in API)


def registry_folder(kind: str) -> str:
    """Folder of the package that holds a kind."""
    return registry.KINDS[kind]


def _table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    lines = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    head = [*header]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines))


def _plain(text: str) -> str:
    """Markdown of the marks that docstrings have."""
    text = re.sub(r":\w+:`([^`<]+)\s<[^`]*>`", r"`\1`", text)
    text = re.sub(r":\w+:`~?([^`]*)`", lambda found: f"`{found[1].rpartition('.')[2]}`", text)
    return re.sub("::$", ":", text.replace("``", "`"), flags=re.MULTILINE)


def _linked(source: str) -> str:
    """A source with links to arXiv and to repositories."""
    source = re.sub(r"arXiv (\d{4}\.\d{4,5})", r"[arXiv \1](https://arxiv.org/abs/\1)", source)
    return re.sub(REPOSITORY, r"[\1](https://github.com/\1)", source)


def _listed(section: griffe.DocstringSection) -> griffe.DocstringSection:
    """A section of what is returned or raised as text, its ``name : meaning`` as a list."""
    kinds = (griffe.DocstringSectionKind.returns, griffe.DocstringSectionKind.raises)
    if section.kind not in kinds:
        return section
    lines = (
        " : ".join(filter(None, [getattr(each, "name", ""), _meaning(each)]))
        for each in section.value
    )
    text = re.sub(r"(?:^|(?<=\.) )([\w, ]+) : ", r"\n- \1: ", "\n".join(lines), flags=re.MULTILINE)
    return griffe.DocstringSectionText(f"**{section.kind.value.capitalize()}:**\n\n{text}")


def _meaning(parameter: griffe.DocstringParameter) -> str:
    """What a docstring says of a parameter: behind the colon, and in the lines below."""
    return " ".join(filter(None, [str(parameter.annotation or ""), parameter.description]))


def _index(kind: str, title: str, folder: str, specs: Mapping[str, registry.Description]) -> str:
    """All components of a kind; of calibrators also what they need and what they keep."""
    header = ["Id", "What it is"]
    if kind == "calibrator":
        header += ["Keeps the predicted class", "Parameters"]
    rows = []
    for spec in specs.values():
        row = [f"[`{spec.id}`]({folder}/{spec.id}.md)", _plain(spec.summary)]
        if kind == "calibrator":
            row += [_value(spec.info[fact]) for fact in ("keeps_argmax", "parameters")]
        rows.append(row)
    return f"# {title}\n\n{ADVICE[kind]}\n\n{_table(header, rows)}\n"


def _card(spec: registry.Description) -> str:
    """One method: idea, equation, options, source, what differs between paper and code."""
    component = registry.load(spec.kind, spec.id)
    sections = griffe.Docstring(component.__doc__ or "").parse("numpy")
    words = [
        section.value for section in sections if section.kind is griffe.DocstringSectionKind.text
    ]
    path = spec.module.replace(".", "/")
    parts = [
        f"# `{spec.id}`",
        *map(_plain, words),
        f"**Source**: {_linked(spec.source)}",
        f"**Code**: `src/{path}.py`",
        _options(spec),
        _results(spec),
        _facts(spec),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


@functools.cache
def _photographs() -> pd.DataFrame:
    return pd.read_parquet(HOME / "docs/photographs/summary.parquet")


def _results(spec: registry.Description) -> str:
    """What the study of photographs found of a method or calibrator; nothing of those that it does
    not have.
    """
    numbers = _photographs()
    axis = "calibrator" if spec.kind == "calibrator" else "method"
    own = numbers[(numbers["split"] == "test") & (numbers[axis] == spec.id)]
    if own.empty or spec.kind == "probe":
        return ""
    other = "method" if axis == "calibrator" else "calibrator"
    means = own.pivot_table(index=other, columns="metric", values="mean", sort=False, observed=True)
    rows = [
        (
            f"`{name}`",
            *(f"{100 * row[each]:.2f}" for each in ("accuracy", "ece_debiased", "ece")),
            f"{row['nll']:.4f}",
        )
        for name, row in means.iterrows()
    ]
    header = (other.capitalize(), "Accuracy (%)", "ECE debiased (%)", "ECE (%)", "NLL (nats)")
    said = (
        "Mean over three seeds on clean test images of [photographs](../photographs.md), a small "
        "network:"
    )
    return f"## On photographs\n\n{said}\n\n{_table(header, rows)}"


def _options(spec: registry.Description) -> str:
    if not spec.options:
        return ""
    limits = spec.info.get("limits", {})
    rows = [
        (
            f"`{name}`",
            f"`{option.default}`",
            _range(option, limits.get(name, "")),
            _plain(option.meaning),
        )
        for name, option in spec.options.items()
    ]
    parts = ["## Options", _table(("Option", "Default", "Values", "Meaning"), rows)]
    if spec.dataset_defaults:
        own = spec.dataset_defaults.items()
        rows = [
            (where, ", ".join(f"`{name}={value}`" for name, value in each.items()))
            for where, each in own
        ]
        parts.append(
            "Defaults of data sets (and networks):\n\n" + _table(("Where", "Defaults"), rows)
        )
    return "\n\n".join(parts)


def _range(option: Option, limits: str) -> str:
    return (
        ", ".join(f"`{choice}`" for choice in option.choices)
        if option.choices
        else f"`{limits or option.type}`"
    )


def _facts(spec: registry.Description) -> str:
    facts = {
        name: fact
        for name, fact in spec.info.items()
        if name not in ("limits", "files") and fact not in ((), "")
    }
    return "## Facts\n\n" + _table(
        ("Fact", "Value"), ((n.replace("_", " "), _value(f)) for n, f in facts.items())
    )


def _value(fact: Any) -> str:
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if isinstance(fact, Mapping):
        return ", ".join(f"{name} {_value(value)}" for name, value in fact.items())
    if isinstance(fact, (tuple, list)):
        return ", ".join(map(_value, fact))
    if isinstance(fact, str) and is_formula(fact):
        return f"`{fact}`"
    return f"{fact:,}" if isinstance(fact, int) else str(fact)


def _section(spec: registry.Description) -> str:
    parts = [f"## `{spec.id}`", _plain(spec.summary), f"Source: {_linked(spec.source)}"]
    facts = {
        name: fact for name, fact in spec.info.items() if name not in ("limits", "files", "source")
    }
    rows = [(name.replace("_", " "), _value(fact)) for name, fact in facts.items()]
    options = [(f"option `{name}`", f"`{option.default}`") for name, option in spec.options.items()]
    return "\n\n".join([*parts, _table(("Fact", "Value"), [*rows, *options])])


def _metrics() -> str:
    better = {True: "lower", False: "higher", None: ""}
    rows = [
        (f"`{n}`", _plain(m.summary), better[m.lower_is_better], _linked(m.source))
        for n, m in METRICS.items()
    ]
    table = _table(("Id", "What it is", "Better", "Source"), rows)
    return f"# Metrics\n\n{ADVICE['metric']}\n\n{table}\n"


def _protocols() -> str:
    parts = [
        "# Protocols",
        "How networks are trained, a file of `config/protocols` each; `base` takes over another.",
    ]
    for path in sorted((HOME / "config" / "protocols").glob("*.yaml")):
        description = yaml.safe_load(path.read_text()).get("description", "")
        code = re.sub(r"^description: >-\n(  .*\n)+", "", path.read_text(), flags=re.MULTILINE)
        parts.append(f"## `{path.stem}`\n\n{description}\n\n```yaml\n{code.strip()}\n```")
    return "\n\n".join(parts)


def _configuration() -> str:
    parts = ["# Configuration"]
    for title, options in {"Study": Config, "Protocol": TrainingProtocol}.items():
        rows = _table(("Key", "Default", "Meaning"), _keys(options, ""))
        parts.append(f"## {title}\n\n{options.__doc__}\n\n{rows}")
    return "\n\n".join(parts) + "\n"


def _keys(options: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    """Keys of a model with defaults and meanings, and below them those of the models in them."""
    for name, field in options.model_fields.items():
        default = field.get_default(call_default_factory=True)
        shown = (
            ""
            if field.is_required() or default is None or isinstance(default, BaseModel)
            else f"`{default}`"
        )
        yield f"`{prefix}{name}`", shown, field.description or ""
        for part, dots in _models(field.annotation, "."):
            yield from _keys(part, f"{prefix}{name}{dots}")


def _models(annotation: Any, dots: str) -> Iterator[tuple[type[BaseModel], str]]:
    """Models in an annotation, and what stands between their key and those of the model."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, dots
    of_items = {list: "[].", dict: ".NAME."}.get(get_origin(annotation), dots)
    for part in get_args(annotation):
        yield from _models(part, of_items)
