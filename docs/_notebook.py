"""Runs the cells of a notebook in the current folder and stores what they show, without Jupyter.

``python docs/_notebook.py docs/from_parquet.ipynb``, from the root of the repository.
"""

import ast
import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

Cell = dict[str, Any]
#: resolution of stored pictures: the page should stay small
DPI = 80


def run(path: Path) -> tuple[list[Cell], dict[str, Any]]:
    """Return the cells of a notebook with their outputs, and the names that they define."""
    cells: list[Cell] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    count = 0
    with mpl.rc_context({"backend": "agg"}):
        for cell in cells:
            if cell["cell_type"] == "code":
                count += 1
                cell["execution_count"] = count
                cell["outputs"] = _outputs("".join(cell["source"]), names, count)
    return cells, names


def _outputs(source: str, names: dict[str, Any], count: int) -> list[Cell]:
    """What a cell prints, the value of its last line, and its figures."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    outputs: list[Cell] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    figures = [plt.figure(number) for number in plt.get_fignums()]
    if value is not None and not figures:
        data = {"text/plain": [repr(value)]}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = [value._repr_html_()]
        result = {"output_type": "execute_result", "execution_count": count, "metadata": {}}
        outputs.append({**result, "data": data})
    for figure in figures:
        content = io.BytesIO()
        figure.savefig(content, dpi=DPI, metadata={"Software": None})
        picture = base64.b64encode(content.getvalue()).decode()
        shown = {"output_type": "display_data", "metadata": {}, "data": {"image/png": picture}}
        outputs.append(shown)
    plt.close("all")
    return outputs


def page(path: Path) -> str:
    """A notebook as a page of Markdown, with its outputs."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                parts.append(f'<img src="data:image/png;base64,{data["image/png"]}" alt="">')
            elif "text/html" in data:
                # an empty line would end the HTML
                parts.append("".join(data["text/html"]).replace("\n", " "))
            else:
                text = "".join(output.get("text", data.get("text/plain")))
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        notebook = json.loads(Path(name).read_text(encoding="utf-8"))
        notebook["cells"], _ = run(Path(name))
        text = json.dumps(notebook, indent=1, ensure_ascii=False)
        Path(name).write_text(text + "\n", encoding="utf-8")
