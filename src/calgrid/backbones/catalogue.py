"""Facts of backbones without building them: existence, size, supported image sizes."""

import difflib
import functools
import importlib.util
import re
from pathlib import Path

from calgrid.components import registry
from calgrid.components.options import Options
from calgrid.errors import ConfigError

#: nothing here changes a number of a result (calgrid.components.fingerprint)
NEUTRAL = True

#: definition of a model in timm's files
TIMM_MODEL = re.compile(r"^@register_model\s+def (\w+)\(", re.MULTILINE)
#: names of weights of a model, the part after the dot of ``resnet50.a1_in1k``
TIMM_WEIGHTS = re.compile(r"""["'](\w+)\.(\w+)["']\s*:""")
#: names that a message suggests
NEAR = 3


def describe(id: str, where: str = "") -> registry.Description:
    """Return the specification of a backbone, or of its library (``timm/resnet50``).

    Raises
    ------
    ConfigError : there is no such backbone; names near ones.
    """
    if id not in registry.descriptions("backbone") and id.partition(".")[0] in timm_names():
        place = f" in {where}" if where else ""
        raise ConfigError(f"Unknown backbone '{id}'{place}: did you mean 'timm/{id}'?")
    component = registry.describe("backbone", id, where)
    if component.info["library"]:
        check_timm_name(id.partition("/")[2], where)
    return component


def check_image_size(id: str, info: Options, height: int, width: int, where: str) -> None:
    """Raise ConfigError if a backbone does not support images of this size by its facts."""
    least, most = info.get("min_size", 1), info.get("max_size")
    if least <= min(height, width) and (most is None or max(height, width) <= most):
        return
    takes = f"{least}x{least} pixels only" if least == most else f"{least}x{least} pixels or more"
    raise ConfigError(
        f"{where}: backbone '{id}' takes images of {takes}, and these have "
        f"{height}x{width}; use another backbone or images of another size."
    )


@functools.cache
def timm_names() -> dict[str, frozenset[str]]:
    """Models of the installed timm and the names of their weights, read from its files; empty
    without timm.

    Importing timm takes seconds, too long for planning a grid.
    """
    installed = importlib.util.find_spec("timm")
    if installed is None or installed.origin is None:
        return {}
    files = sorted(Path(installed.origin).parent.glob("models/*.py"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    weights: dict[str, set[str]] = {name: set() for name in TIMM_MODEL.findall(text)}
    for name, tag in TIMM_WEIGHTS.findall(text):
        if name in weights:
            weights[name].add(tag)
    return {name: frozenset(tags) for name, tags in weights.items()}


def check_timm_name(name: str, where: str = "") -> None:
    """Raise ConfigError unless the installed timm has the model and, if the name contains weights,
    the weights.

    The name is ``model`` or ``model.weights``.
    """
    if not name:
        raise ConfigError(
            f"{where or 'backbone'}: 'timm' is a library; write timm/ and the name of one of its "
            "models."
        )
    known = timm_names()
    if not known:
        return
    model, dot, tag = name.partition(".")
    # some models use weights of other models, which only timm itself knows: accept all known names
    # of weights
    if model in known and (not dot or any(tag in tags for tags in known.values())):
        return
    options = [f"{model}.{weights}" for weights in known[model]] if model in known else list(known)
    begun = [option for option in options if _letters(option).startswith(_letters(name))]
    close = difflib.get_close_matches(name, options, n=NEAR)
    near = list(dict.fromkeys([*sorted(begun, key=len), *close]))[:NEAR]
    place = f" in {where}" if where else ""
    hint = (
        f"did you mean {', '.join(near)}?"
        if near
        else "timm.list_models(pretrained=True) lists what there is."
    )
    raise ConfigError(f"Unknown timm model '{name}'{place}: {hint}")


def _letters(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())
