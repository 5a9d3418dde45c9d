"""``calgrid new``: a template for a component of your own, and its test."""

import re
from importlib import resources

from calgrid.cli.terminal import Arguments, write
from calgrid.components import plugins, registry
from calgrid.errors import ConfigError
from calgrid.storage.atomic import write_text


def new(options: Arguments) -> None:
    """Write a working component and its test into a plugin folder; nothing is overwritten."""
    kind, id, folder = options.kind, options.id, options.into
    if not re.fullmatch("[a-z][a-z0-9_]*", id) or id == "base":
        raise ConfigError(
            f"'{id}' is not a valid identifier; use lower-case letters, digits and _, starting "
            f"with a letter, and not 'base'."
        )
    plugins.check_folder(folder, "--into")
    package = registry.KINDS[kind]
    files = {
        folder / package / f"{id}.py": f"{kind}.py",
        folder / "tests" / f"test_{kind}_{id}.py": f"test_{kind}.py",
    }
    for path in files:
        if path.exists():
            raise ConfigError(f"{path} exists already; choose another name, or remove it.")
    owner = registry.taken(kind, id)
    if kind == "metric":
        from calgrid.metrics import METRICS

        owner = owner or ("metric of calgrid/metrics/table.py" if id in METRICS else "")
    if owner:
        raise ConfigError(f"'{id}' is already the {owner}; choose another name.")
    templates = {}
    for path, name in files.items():
        templates[path] = resources.files("calgrid.templates").joinpath(name).read_text("utf-8")
    class_name = "".join(map(str.capitalize, id.split("_")))
    names_in_templates = re.findall(r"\w+", " ".join(templates.values()))
    if class_name in names_in_templates:
        class_name = f"My{class_name}"
    for path, text in templates.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text.replace("my_component", id).replace("MyComponent", class_name))
        write(f"wrote {path}\n")
    named = f" and 'statistics: {{metrics: [{id}]}}'" if kind == "metric" else ""
    write(
        f"Test it: pytest {folder / 'tests'}\n"
        f"Use it: write 'plugins: [{folder}]'{named} into a configuration; for other commands, "
        f"{plugins.VARIABLE}={folder} calgrid list {package}\n"
    )
