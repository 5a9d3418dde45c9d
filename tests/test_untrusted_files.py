"""No file is read in a way that could run what a stranger wrote into it: a look at all code for such calls.

That malicious files are refused, and run nothing, is tested beside each reader: archives (test_cifar.py), prepared
arrays (test_prepared.py), weights and checkpoints (tests/backbones), resume states (tests/storage), logits made
elsewhere (test_external.py).
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: the one reader of pickles, which builds nothing but arrays and plain values
RESTRICTED = "src/calgrid/datasets/_archives.py"
UNPICKLERS = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "pickle5"}
#: calls that are safe with this argument alone
SAFE_WITH = {
    ("torch", "load"): ("weights_only", True),
    ("np", "load"): ("allow_pickle", False),
    ("numpy", "load"): ("allow_pickle", False),
}
#: calls that are not safe whatever the arguments
NEVER = {
    ("pd", "read_pickle"),
    ("pandas", "read_pickle"),
    ("yaml", "load"),
    ("yaml", "unsafe_load"),
    ("yaml", "full_load"),
    ("torch.hub", "load"),
    ("torch.hub", "load_state_dict_from_url"),
    ("os", "system"),
    ("", "eval"),
    ("", "exec"),
}


def sources():
    folders = (ROOT / "src", ROOT / "benchmarks", ROOT / ".ci")
    return {str(path.relative_to(ROOT)): path for folder in folders for path in sorted(folder.rglob("*.py"))}


def dangers(source):
    """What in a source could run the content of a file, one sentence each."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {(node.module or "").partition(".")[0]}
            imported = {(node.module, alias.name) for alias in node.names}
            found += [f"line {node.lineno}: {name} without its module" for _, name in imported & set(SAFE_WITH)]
        else:
            names = set()
        found += [f"line {node.lineno}: imports {name}" for name in sorted(names & UNPICKLERS)]
        if isinstance(node, ast.Call):
            found += [f"line {node.lineno}: {said}" for said in call_dangers(node)]
    return found


def call_dangers(node):
    module, _, name = ast.unparse(node.func).rpartition(".")
    keywords = {each.arg: getattr(each.value, "value", None) for each in node.keywords}
    if (module, name) in NEVER:
        yield f"calls {module}.{name}"
    option, value = SAFE_WITH.get((module, name), (None, None))
    if option is not None and keywords.get(option) is not value:
        yield f"{module}.{name} without {option}={value}"
    if keywords.get("allow_pickle") is True or keywords.get("shell") is True:
        yield f"{name} with allow_pickle or shell"


def test_nothing_but_the_restricted_reader_can_run_what_a_file_holds():
    found = {name: dangers(path.read_text(encoding="utf-8")) for name, path in sources().items()}
    assert found.pop(RESTRICTED) == ["line 8: imports pickle"]
    assert {name: said for name, said in found.items() if said} == {}
    assert len(found) > 100


def test_the_restricted_reader_unpickles_through_its_own_class_only():
    tree = ast.parse((ROOT / RESTRICTED).read_text(encoding="utf-8"))
    used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {name for name in used if name.startswith("pickle.")} == {"pickle.Unpickler", "pickle.UnpicklingError"}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import load",
        "import torch\ntorch.load(path)",
        "torch.load(path, weights_only=False)",
        "torch.load(path, weights_only=flag)",
        "from torch import load",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "np.savez(path, a, allow_pickle=True)",
        "pd.read_pickle(path)",
        "yaml.load(text, Loader=yaml.Loader)",
        "eval(text)",
        "torch.hub.load('somebody/model', 'x')",
        "subprocess.run(text, shell=True)",
    ],
)
def test_the_look_finds(source):
    assert dangers(source)


@pytest.mark.parametrize(
    "source", ["torch.load(path, weights_only=True)", "np.load(path, allow_pickle=False)", "yaml.safe_load(text)"]
)
def test_the_look_passes(source):
    assert dangers(source) == []
