"""Which methods a component's class still has to define, read without importing it."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

PACKAGE_ROOT = Path(__file__).parent


def undefined(module: str, class_name: str) -> list[str]:
    """Names of methods that bases within the package leave to their subclasses, and that nothing here defines.

    A base leaves a method to its subclasses if it marks it as abstract or only raises NotImplementedError in it.

    Parameters
    ----------
    module : dotted name, ``calgrid.calibrators.ts``. class_name : class in it.
    """
    wanted: list[str] = []
    defined: set[str] = set()
    waiting = [(module, class_name)]
    while waiting:
        module, class_name = waiting.pop()
        classes, imported = _names(module)
        if class_name not in classes:  # a package passes it on, or it is another package's and taken as complete
            waiting += [imported[class_name]] if class_name in imported else []
            continue
        for name, abstract in _members(classes[class_name]):
            if not abstract:
                defined.add(name)
            elif name not in wanted:
                wanted.append(name)
        bases = [base.id for base in classes[class_name].bases if isinstance(base, ast.Name)]
        waiting += [imported.get(base, (module, base)) for base in bases]
    return [name for name in wanted if name not in defined]


@functools.cache
def _names(module: str) -> tuple[dict[str, ast.ClassDef], dict[str, tuple[str, str]]]:
    """Classes of a module of this package, and where the names that it imports come from: (module, name)."""
    package, _, rest = module.partition(".")
    base = PACKAGE_ROOT.joinpath(*rest.split("."))
    paths = [path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()]
    if package != __package__ or not paths:
        return {}, {}
    tree = ast.parse(paths[0].read_text(encoding="utf-8"))
    body = [*tree.body, *(node for block in tree.body if isinstance(block, ast.If) for node in block.body)]
    imports = [node for node in body if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    imported = {alias.asname or alias.name: (str(node.module), alias.name) for node in imports for alias in node.names}
    return {node.name: node for node in body if isinstance(node, ast.ClassDef)}, imported


def _members(found: ast.ClassDef) -> Iterator[tuple[str, bool]]:
    """Names that a class's body defines, and whether as something that is left to subclasses."""
    for node in found.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, _is_abstract(node)
        elif isinstance(node, ast.Assign):
            yield from ((target.id, False) for target in node.targets if isinstance(target, ast.Name))


def _is_abstract(node: ast.FunctionDef) -> bool:
    if any("abstractmethod" in ast.unparse(mark) for mark in node.decorator_list):
        return True
    last = node.body[-1]
    return isinstance(last, ast.Raise) and last.exc is not None and "NotImplementedError" in ast.unparse(last.exc)
