"""Declarations of a module of this package or of a plugin, read from its source without importing
it.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calgrid.components import plugins
from calgrid.errors import ConfigError


@dataclass(frozen=True)
class Module:
    """Top-level names of a module: classes, functions, constants and imports: name -> (module, name
    there).
    """

    classes: Mapping[str, ast.ClassDef]
    constants: Mapping[str, ast.expr]
    imported: Mapping[str, tuple[str, str]]
    functions: Mapping[str, ast.FunctionDef] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: ast.Module, name: str = "") -> "Module":
        """Return the declarations of a syntax tree, including imports under ``if TYPE_CHECKING:``."""
        body = [
            *tree.body,
            *(node for block in tree.body if isinstance(block, ast.If) for node in block.body),
        ]
        imports = [
            (node, imported_from(node, name)) for node in body if isinstance(node, ast.ImportFrom)
        ]
        return cls(
            {node.name: node for node in body if isinstance(node, ast.ClassDef)},
            dict(_constants(body)),
            {
                alias.asname or alias.name: (module, alias.name)
                for node, module in imports
                for alias in node.names
            },
            {node.name: node for node in body if isinstance(node, ast.FunctionDef)},
        )

    def literal(self, node: ast.expr) -> Any:
        """Return the value of an expression of literals and constants of this package and of
        plugins.

        Raises ValueError: it is anything else.
        """
        if isinstance(node, ast.Name):
            if node.id in self.constants:
                return self.literal(self.constants[node.id])
            module, name = self.imported.get(node.id, ("", ""))
            return read_module(module).literal(ast.Name(name)) if name else ast.literal_eval(node)
        if isinstance(node, ast.Dict):
            found: dict[Any, Any] = {}
            for key, value in zip(node.keys, node.values, strict=True):  # without a key: **value
                found.update(
                    self.literal(value) if key is None else {self.literal(key): self.literal(value)}
                )
            return found
        if isinstance(node, ast.Tuple | ast.List):
            items: list[Any] = []
            for item in node.elts:
                items += (
                    self.literal(item.value)
                    if isinstance(item, ast.Starred)
                    else [self.literal(item)]
                )
            return tuple(items) if isinstance(node, ast.Tuple) else items
        return ast.literal_eval(node)

    def bases(self, class_name: str) -> Iterator[tuple["Module", str]]:
        """Yield the bases of a class that are defined in this package or a plugin: (module, name)."""
        for base in self.classes[class_name].bases:
            if isinstance(base, ast.Name):
                yield from self.find(
                    base.id, own=base.id != class_name
                )  # class Loss(Loss): that of another module

    def find(self, name: str, own: bool = True) -> Iterator[tuple["Module", str]]:
        """Yield the definition of a class, if it is in this package or a plugin."""
        if own and name in self.classes:
            yield self, name
        elif name in self.imported:
            module, original = self.imported[name]
            yield from read_module(module).find(original)

    def keyword_only(self, class_name: str) -> dict[str, tuple[ast.arg, ast.expr | None, "Module"]]:
        """Keyword-only arguments of the constructor of a class, with default and module.

        A class without a constructor inherits that of its base; ``**`` adds the remaining arguments
        of the base.
        """
        found: dict[str, tuple[ast.arg, ast.expr | None, Module]] = {}
        body = self.classes[class_name].body
        own = next(
            (n.args for n in body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None
        )
        if own:
            pairs = zip(own.kwonlyargs, own.kw_defaults, strict=True)
            found = {arg.arg: (arg, default, self) for arg, default in pairs}
        if not own or own.kwarg:
            for module, base in self.bases(class_name):
                found = {**module.keyword_only(base), **found}
        return found


def _constants(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for node in body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if (
            isinstance(node, ast.Assign | ast.AnnAssign)
            and isinstance(target, ast.Name)
            and node.value is not None
        ):
            yield target.id, node.value


def imported_from(node: ast.ImportFrom, module: str) -> str:
    """Return the absolute module name of an import statement in ``module``."""
    if not node.level:
        return str(node.module)
    path = plugins.locate(module)
    parts = module.split(".")
    above = node.level - (path is not None and path.name == "__init__.py")
    return ".".join([*parts[: len(parts) - above], *([node.module] if node.module else [])])


@plugins.cached
def read_module(name: str) -> Module:
    """Return the declarations of a module of this package or of a plugin; nothing for other
    modules.
    """
    path = plugins.locate(name)
    return Module({}, {}, {}) if path is None else Module.of(parse(path, plugins.shown(name)), name)


def parse(path: Path, where: str) -> ast.Module:
    """Return the syntax tree of a file; ConfigError with the name ``where`` if it is not valid
    Python in UTF-8.
    """
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise ConfigError(
            f"{where}, line {error.lineno}, is not valid Python ({error.msg})."
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{where} is not UTF-8: save it as UTF-8.") from None
    except ValueError as error:
        raise ConfigError(f"{where} is not valid Python ({error}).") from None


@plugins.cached
def undefined(module: str, class_name: str) -> list[str]:
    """Names of abstract methods of bases within the package that the class does not define.

    A base leaves a method to its subclasses if it marks it as abstract or only raises
    NotImplementedError in it.
    """
    wanted: dict[str, None] = {}
    defined: set[str] = set()
    waiting = list(read_module(module).find(class_name))
    while waiting:
        where, name = waiting.pop()
        for node in where.classes[name].body:
            if isinstance(node, ast.FunctionDef) and _is_abstract(node):
                wanted[node.name] = None
            elif isinstance(node, ast.FunctionDef):
                defined.add(node.name)
            elif isinstance(node, ast.Assign):
                defined |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        waiting += where.bases(name)
    return [name for name in wanted if name not in defined]


def _is_abstract(node: ast.FunctionDef) -> bool:
    if any("abstractmethod" in ast.unparse(mark) for mark in node.decorator_list):
        return True
    last = node.body[-1]
    return (
        isinstance(last, ast.Raise)
        and last.exc is not None
        and "NotImplementedError" in ast.unparse(last.exc)
    )
