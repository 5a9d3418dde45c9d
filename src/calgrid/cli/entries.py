"""Components as text: one line each, or all details of one."""

from collections.abc import Iterable, Mapping
from typing import Any

#: parts of an entry that are printed as lists, and their titles
PARTS = {"defaults": "options", "dataset_defaults": "options on", "facts": "facts"}


def lines(entries: Iterable[Mapping[str, Any]]) -> str:
    """Return one line per component: identifier, summary, and the file of a plugin's component."""
    rows = [(entry["id"], entry["summary"] + _origin(entry)) for entry in entries]
    width = max(len(id) for id, _ in rows) + 2
    return "".join(f"{id:{width}s}{summary}\n" for id, summary in rows)


def _origin(entry: Mapping[str, Any]) -> str:
    return f" (plugin: {entry['file']})" if "file" in entry else ""


def sheet(entry: Mapping[str, Any], kind: str) -> str:
    """Return all details of one component, one line each."""
    found = [f"{entry['id']} ({kind})", f"  {entry['summary']}", f"  source: {entry['source']}"]
    if "file" in entry:
        found.append(f"  plugin: {entry['file']}")
    ranges = entry.get("ranges", {})
    for part, title in PARTS.items():
        values = entry.get(part, {})
        if not values:
            continue
        found.append(f"  {title}:")
        width = max(map(len, values)) + 2
        for name, value in values.items():
            within = f"  (in {ranges[name]})" if part == "defaults" and name in ranges else ""
            found += [f"    {name:{width}s}{line}" for line in _shown(value)[:1]]
            found[-1] += within
            found += [f"    {'':{width}s}{line}" for line in _shown(value)[1:]]
    return "\n".join(found) + "\n"


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
