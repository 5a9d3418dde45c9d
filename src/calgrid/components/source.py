"""Read declarations of a Python file without running it: planning must not import torch."""

import ast
import builtins
import importlib
import itertools
import traceback
from typing import Any, NamedTuple

from calgrid.components import plugins
from calgrid.errors import ConfigError


class Declarations(NamedTuple):
    """Declarations of a module: values by name, and the imports (module, name) that the module does
    not use itself.
    """

    values: dict[str, object]
    imports: dict[str, tuple[str, str]]


def parse(content: bytes, where: str) -> ast.Module:
    """Return the syntax tree of a file's content; ConfigError with the name ``where`` if it is not
    valid Python in UTF-8.
    """
    try:
        return ast.parse(content.decode())
    except SyntaxError as error:
        raise ConfigError(
            f"{where}, line {error.lineno}, is not valid Python ({error.msg})."
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{where} is not UTF-8; save it as UTF-8.") from None
    except ValueError as error:
        raise ConfigError(f"{where} is not valid Python ({error}).") from None


def imported_from(node: ast.ImportFrom, module: str) -> str:
    """Return the absolute module name of an import statement in ``module``."""
    if not node.level:
        return str(node.module)
    path = plugins.locate(module)
    above = node.level - (path is not None and path.name == "__init__.py")
    parts = module.split(".")
    package = parts[: len(parts) - above]
    return ".".join([*package, node.module] if node.module else package)


@plugins.cached
def declarations(module: str) -> Declarations:
    """Return classes, registered functions and constants of a module of calgrid or a plugin.

    The file is reduced to constants, ``@register(...)``, bases, and signatures of constructors,
    which run without torch. Names of other packages stand for empty classes.

    Raises
    ------
    ConfigError : the file is not valid Python, or something that is registered needs more.
    """
    path = plugins.locate(module)
    where = plugins.shown(module)
    imports: dict[str, tuple[str, str]] = {}
    namespace: dict[str, object] = {"__name__": module}
    namespace["__builtins__"] = {"__build_class__": builtins.__build_class__}
    failed: dict[str, tuple[int | None, Exception]] = {}
    tree = parse(path.read_bytes() if path else b"", where)
    # imports also stand under ``if TYPE_CHECKING:`` and ``with say_extra():``
    blocks = (ast.If, ast.With)
    parts = [node.body if isinstance(node, blocks) else [node] for node in tree.body]
    for node in itertools.chain(*parts):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                imports[alias.asname or alias.name] = (imported_from(node, module), alias.name)
            continue
        statement = _reduced(node)
        if statement is None:
            continue
        for part in ast.walk(statement):
            if isinstance(part, ast.Name) and part.id in imports:
                namespace[part.id] = _imported(*imports.pop(part.id))
        reduced = ast.fix_missing_locations(ast.Module([statement], []))
        try:
            exec(compile(reduced, where, "exec"), namespace)  # noqa: S102
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            (*_, line) = [frame.lineno for frame in frames if frame.filename == where]
            # of a base or constant that failed before
            line, reason = failed.get(getattr(error, "name", ""), (line, error))
            if not isinstance(statement, ast.Assign) and statement.decorator_list:
                raise ConfigError(
                    f"{where}, line {line}: @register and defaults of hyper-parameters must be "
                    "literals or constants, as they are read without importing the file "
                    f"({reason})."
                ) from error
            if isinstance(statement, ast.Assign):
                failed[ast.unparse(statement.targets[0])] = (line, reason)
            else:
                failed[statement.name] = (line, reason)
    return Declarations(namespace, imports)


def _imported(module: str, name: str) -> Any:
    """Return the object that an import binds to a name."""
    if module.startswith(f"{__package__}."):
        return getattr(importlib.import_module(module), name)
    known = Declarations({}, {}) if plugins.locate(module) is None else declarations(module)
    if name in known.imports:  # a package that names the content of its modules
        return _imported(*known.imports[name])
    return known.values.get(name, type(name, (), {}))


def _reduced(node: ast.stmt) -> ast.Assign | ast.ClassDef | ast.FunctionDef | None:
    """Return the part of a statement that declares something; None if there is none."""
    if isinstance(node, ast.Assign):
        return node
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return ast.Assign([node.target], node.value)
    if not isinstance(node, ast.ClassDef | ast.FunctionDef):
        return None
    marks = [mark for mark in node.decorator_list if ast.unparse(mark).startswith("register(")]
    body: list[ast.stmt] = [ast.Expr(ast.Constant(ast.get_docstring(node) or ""))]
    if isinstance(node, ast.FunctionDef):
        return ast.FunctionDef(node.name, _keyword_only(node.args), body, marks) if marks else None
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            body.append(ast.FunctionDef("__init__", _keyword_only(part.args), [ast.Pass()], []))
        elif isinstance(part, ast.AnnAssign) and part.value is not None:
            text = ast.Constant(ast.unparse(part.annotation))
            is_called = any(isinstance(each, ast.Call) for each in ast.walk(part.value))
            if marks or not is_called:  # a base may compute what is no hyper-parameter
                body.append(ast.AnnAssign(part.target, text, part.value, part.simple))
    plain = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    bases: list[ast.expr] = [base for base in plain if isinstance(base, ast.Name)]
    return ast.ClassDef(node.name, bases, [], body, marks)


def _keyword_only(arguments: ast.arguments) -> ast.arguments:
    """Return the keyword-only parameters and ``**``, with annotations as text."""
    parameters = []
    for argument in arguments.kwonlyargs:
        annotation = argument.annotation
        text = None if annotation is None else ast.Constant(ast.unparse(annotation))
        parameters.append(ast.arg(argument.arg, text))
    more = None if arguments.kwarg is None else ast.arg(arguments.kwarg.arg)
    return ast.arguments([], [], None, parameters, arguments.kw_defaults, more, [])
