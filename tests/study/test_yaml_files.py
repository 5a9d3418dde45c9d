"""YAML files: what YAML would take silently, or end in a traceback, is refused in a sentence."""

import json

import pytest
import yaml

from calgrid.errors import ConfigError
from calgrid.study.study import Study
from calgrid.study.yaml_files import read_configuration, read_yaml


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "mine.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


#: seven levels of ten aliases each: 10 million values in some lines
ALIASES = "a0: &a0 [" + "x, " * 10 + "]\n"
ALIASES += "".join(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 10}]\n" for n in range(1, 7))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "grids:\n  - seeds: [1]\n    methods: [ce]\n    seeds: [2]\n",
            "line 4: the key 'seeds' is already in line 2; remove one",
        ),
        ("a: &x {b: 1}\nc: {<<: *x, d: 1, d: 2}\n", "line 2: the key 'd'"),
        (
            "a:\n  b: [1\nc: 2\n",
            ", line 3, column 2, is not valid YAML: expected ',' or ']', but got ':' ... which "
            "starts in line 2).",
        ),
        ("a: *b\n", ", line 1, column 4, is not valid YAML: found undefined alias 'b'"),
        (
            "a: b\x01\n",
            "is not valid YAML: unacceptable character #x0001: special characters are not allowed",
        ),
        ("a: &b {c: *b}\n", "is not valid YAML: an alias refers to a value that contains it"),
        (ALIASES, "is not valid YAML: its aliases repeat more than 1,000,000 values"),
        (f"a: 0x{'f' * 6000}\n", "line 1, column 4 ... a number is too long"),
        ("a: " + "[" * 1000 + "]" * 1000, "is nested too deeply; use fewer levels"),
        ("a: 2026-13-01\n", "is not valid YAML ... month"),
        ("? [a]\n: 1\n? {b: c}\n: 2\n", "is not valid YAML"),
        ("study: größe".encode("latin-1"), "is not UTF-8 ... save it as UTF-8"),
        ("- a\n", "must be a mapping"),
    ],
)
def test_what_is_refused(write, refuses, text, parts):
    path = write(text)
    with refuses(ConfigError, f"The configuration {path}", parts):
        read_configuration(path)


def test_a_missing_file(tmp_path, refuses):
    with refuses(ConfigError, f"The configuration {tmp_path / 'no.yaml'} does not exist"):
        read_configuration(tmp_path / "no.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "a: &x {b: 1, c: 2}\nd: {<<: *x, b: 3}\ne: {<<: *x, c: 4}\n",
        "a: &x {b: 1}\nf: &y {<<: *x, b: 2}\nd: {<<: [*x, *y], b: 3}\n",
        "a: &x [1, 2]\nb: *x\nc: *x\n",
        "1: a\n'1': b\n",
        "a: {c: 1}\nb: {c: 1}\n",
        "",
    ],
)
def test_what_yaml_means_is_kept(write, text):
    assert read_yaml(write(text), "It") == yaml.safe_load(text)


def test_a_configuration_may_be_written_in_json(write, make_config):
    assert read_configuration(write(json.dumps(make_config(), indent=2))) == make_config()


def test_a_protocol_file_is_read_in_the_same_way(home, tmp_path, make_config, refuses):
    (tmp_path / "workflow").symlink_to(home / "workflow")
    protocols = tmp_path / "config" / "protocols"
    protocols.mkdir(parents=True)
    text = (home / "config" / "protocols" / "digits.yaml").read_text()
    (protocols / "digits.yaml").write_text(f"{text}\nepochs: 1\n")
    with refuses(ConfigError, "The protocol file", "digits.yaml, line ", "'epochs' is already in"):
        Study(make_config(), tmp_path)
