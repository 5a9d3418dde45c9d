"""The command line: quick to start, lists components, checks studies, stops on mistakes."""

import json
import os
import re
import sys
from io import StringIO
from types import SimpleNamespace

import numpy as np
import pytest
from tests.datasets.archives import write_files
from tests.datasets.pictures import write_parquet
from tests.jobs.small import write_plan

import calgrid as package
from calgrid.cli.commands import COMMANDS
from calgrid.cli.commands import LISTED_KINDS as KINDS
from calgrid.cli.main import build_parser, main
from calgrid.cli.terminal import EXIT_STOPPED
from calgrid.components import registry
from calgrid.metrics import METRICS
from calgrid.metrics.conformal import SCORES, SET_METRICS
from calgrid.plan import resources
from calgrid.plan.plan import Plan
from calgrid.storage.records import Record, write_record
from calgrid.study.home import home
from calgrid.study.runs import registered_methods
from calgrid.study.study import Study
from calgrid.training.interrupt import StoppedError

IDS = {package: list(registry.descriptions(kind)) for kind, package in registry.KINDS.items()}
IDS |= {"methods": list(registered_methods()), "metrics": list(METRICS)}
IDS |= {"conformal": [*SCORES, *SET_METRICS], "external": ["files", "run", "bank", "calarena"]}
IDS |= {"ensembles": ["ens5(METHOD)", "ens5(METHOD,logit)", "ens5(METHOD,CALIBRATOR)"]}
IDS |= {"checkpoints": ["best", "refined", "last", "ema", "swa"]}
IDS |= {"protocols": sorted(path.stem for path in (home() / "config/protocols").glob("*.yaml"))}


def test_version(calgrid):
    done = calgrid("--version")
    assert (done.code, done.out) == (0, f"calgrid {package.__version__}\n")


def test_prepared_data_have_a_record(succeeds, make_config, home, tmp_path):
    spec, folder = Plan(Study(make_config(), home)).data("digits").spec, tmp_path / "digits"
    write_plan(tmp_path / "plan.json", {str(folder): spec}, "calgrid.jobs.data")
    succeeds("job", "data", "--plan", tmp_path / "plan.json", "--out", folder)
    record = Record.read(folder, "prepare.json")
    assert record.content["spec"]["image_set"] == "digits"
    assert record.content["fingerprint"] == spec["fingerprint"]
    assert record.content["seconds"] > 0
    assert record.content["peak_memory_mb"] > 10
    facts = {"commit", "calgrid", "python", "numpy", "machine", "cpu"}
    assert facts <= set(record.content["environment"])
    assert {"manifest.json", "test_images.npy"} <= set(record.files)


def test_every_command_has_help_for_every_option(succeeds):
    (subparsers,) = (action for action in build_parser()._actions if action.dest == "command")
    for command, parser in subparsers.choices.items():
        succeeds(command, "--help")
        options = [
            action for action in parser._actions if action.dest not in ("help", "device", "kind")
        ]
        assert all(action.help for action in options), command


def test_help_and_lists_import_no_heavy_library(run_python, home):
    program = """
import sys
from io import StringIO
from calgrid.cli import main
for kind in ("methods", "calibrators", "datasets", "backbones", "procedures", "probes"):
    main(["list", kind])
try:
    main(["--help"])
except SystemExit:
    pass
print({"torch", "snakemake", "sklearn", "scipy", "pandas", "pyarrow", "numpy"} & set(sys.modules))
"""
    assert run_python(program, home).splitlines()[-1] == "set()"


def test_help_has_no_line_longer_than_80_columns(calgrid, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for command in ([], *([name] for name in COMMANDS)):
        assert max(map(len, calgrid(*command, "--help").out.splitlines())) <= 80, command


def test_without_a_command_the_help_is_printed(calgrid):
    done = calgrid()
    assert (done.code, done.err) == (0, "")
    assert done.out == calgrid("--help").out


def test_a_mistake_shows_the_usage_of_its_command(calgrid):
    for arguments, begin in (
        (["calibrat"], "usage: calgrid [-h]"),
        (["--mistake"], "usage: calgrid [-h]"),
        (["metrics", "val.csv", "--mistake"], "usage: calgrid metrics [-h]"),
        (["metrics"], "usage: calgrid metrics [-h]"),
    ):
        done = calgrid(*arguments)
        assert done.code == 2
        assert done.err.startswith(begin)
        assert "Traceback" not in done.err


def test_list_alone_lists_the_kinds(calgrid):
    assert calgrid("list").out.split() == list(KINDS)
    assert json.loads(calgrid("list", "--json").out) == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_lists_hold_every_component_with_its_source(calgrid, succeeds, kind):
    done = succeeds("list", kind, "--json")
    entries = json.loads(done.out)
    assert [entry["id"] for entry in entries] == IDS[kind]
    assert all(entry["source"] and entry["summary"] for entry in entries)
    lines = calgrid("list", kind).out.splitlines()
    assert [line.split()[0] for line in lines] == IDS[kind]
    assert all(line.endswith(entry["summary"]) for line, entry in zip(lines, entries, strict=True))


def test_all_that_is_known_of_a_component_is_in_lines(calgrid):
    lines = [line.split() for line in calgrid("list", "mbls").out.splitlines()]
    assert lines[0] == ["mbls", "(loss)"]
    meaning = "distance m to the largest logit without penalty, at least 0."
    assert ["margin", "6.0", "(in", "[0,", "inf))", *meaning.split()] in lines
    assert ["tiny_imagenet", "margin:", "10.0"] in lines
    assert calgrid("list", "losses", "mbls").out == calgrid("list", "mbls").out
    (entry,) = json.loads(calgrid("list", "mbls", "--json").out)
    assert entry["defaults"] == {"margin": 6.0, "lambda_": 0.1, "reduction": "mean"}
    lines = [line.split() for line in calgrid("list", "calibrators", "smart").out.splitlines()]
    for fact in ("needs logits", "keeps_argmax yes", "parameters 49"):
        assert fact.split() in lines


def test_a_model_of_timm_is_listed_with_its_weights(calgrid):
    lines = [line.split() for line in calgrid("list", "timm/resnet18").out.splitlines()]
    assert lines[0] == ["timm/resnet18", "(backbone)"]
    assert "tv_in1k" in lines[-1]


def test_a_component_or_kind_that_is_not_there(fails):
    fails("list", "timm/resnet19", parts=["Unknown timm model 'resnet19': did you mean resnet18"])
    fails("list", "timm/mobilenet_v3", parts=["did you mean mobilenetv3_rw, mobilenetv3_"])
    own = " in calgrid (names that a study defines are in its file alone)"
    fails("list", "mblss", parts=[f"Unknown component 'mblss'{own}: did you mean 'mbls'?"])
    fails("list", "method", parts=[f"Unknown component 'method'{own}: did you mean 'methods'?"])
    fails("list", "protocols", "zzz", parts=[f"Unknown protocol 'zzz'{own}: valid: aclsline"])
    fails("list", "losses", "ts", parts=["Unknown loss 'ts'"])
    fails("list", "method", "ts", parts=["Unknown kind 'method': did you mean 'methods'?"])


def test_the_help_leaves_out_the_command_of_the_workflow_rules(calgrid):
    named = re.findall(r"^  ([a-z-]+) ", calgrid("--help").out, re.MULTILINE)
    assert {"list", "calibrate", "metrics", "compare", "cost", "status", "show"} <= {*named}
    assert "job" not in named
    assert calgrid("job", "--help").out.startswith("usage: calgrid job ")


def test_a_shell_is_told_what_could_follow_by_argcomplete_where_it_is_installed(
    calgrid, monkeypatch
):
    asked = []
    monkeypatch.setitem(sys.modules, "argcomplete", SimpleNamespace(autocomplete=asked.append))
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    calgrid("--version")
    assert [parser.prog for parser in asked] == ["calgrid"]


class TestCheck:
    def test_says_what_would_run_with_fingerprints(self, succeeds, configured, make_config, home):
        config = make_config({"methods": ["tst", "ls"]})
        done = succeeds("check", configured(config))
        first, *runs = done.out.splitlines()
        assert first == (
            "study 'small': 2 runs, 12 jobs (data 1, train 3, predict 2, calibrate 2, "
            "aggregate 1, tables 1, figures 1, report 1)"
        )
        plan = Plan(Study(config, home))
        assert runs == [
            f"  {plan.train(key).fingerprint}  {key.path}" for key in plan.study.evaluations
        ]

    def test_another_data_root_takes_the_place_of_the_configurations(
        self, succeeds, fails, configured, make_config, tmp_path
    ):
        mine = {"val": "val.npz", "test": "test.npz", "kind": "logits", "calibrators": ["ts"]}
        mine |= {"backbone": "resnet8", "method": "ce"}
        path = configured(make_config(external={"mine": mine}, data_root=str(tmp_path / "none")))
        fails("check", path, parts=[f"data_root: the folder '{tmp_path}/none' does not exist"])
        (tmp_path / "there").mkdir()
        for name, logits in (("val.npz", 2 * np.eye(2)), ("test.npz", 3 * np.eye(2))):
            np.savez(tmp_path / "there" / name, logits=logits, label=[0, 1])
        done = succeeds("check", path, "--data-root", tmp_path / "there")
        assert "import 1" in done.out

    def test_says_which_overrides_match_nothing(self, succeeds, configured, make_config):
        matches = [("method", "mbls"), ("method", "acls"), ("backbone", "resnet50")]
        overrides = [{"match": {axis: name}, "set": {"margin": 3.0}} for axis, name in matches]
        done = succeeds("check", configured(make_config(overrides=overrides)))
        said = [f"Warning: overrides[{number}] matches no run of this study." for number in (1, 2)]
        assert done.err.splitlines() == said

    @pytest.mark.parametrize(
        ("seeds", "said"),
        [
            ([1], "verdicts: none with one seed (1 method against ce); use five seeds at least"),
            ([1, 2, 3], "verdicts: 3 seeds find (1 method against ce, 80 % power) differences of "),
        ],
    )
    def test_says_what_the_seeds_can_find(self, calgrid, configured, make_config, seeds, said):
        done = calgrid("check", configured(make_config({"methods": ["ce", "ls"], "seeds": seeds})))
        (line,) = [line for line in done.out.splitlines() if line.startswith("verdicts: ")]
        assert line.startswith(said)

    def test_says_that_a_gpu_which_is_not_here_is_not_checked(
        self, succeeds, configured, make_config, monkeypatch
    ):
        monkeypatch.setattr(resources, "GPU_DEVICES", ())
        done = succeeds("check", configured(make_config(device="cuda")))
        assert done.err.startswith("Warning: 'device: cuda' needs a GPU, and this machine has none")

    def test_shows_the_images_of_each_class_and_warns_of_few(
        self, calgrid, configured, make_config, tmp_path
    ):
        write_parquet(tmp_path / "train.parquet", [b""] * 120, [0, 1] * 60)
        mine = {"base": "image_parquet", "like": "cifar10", "n_classes": 2}
        mine |= {"val_size": 10, "test_size": 40}
        path = configured(
            make_config({"datasets": ["mine"]}, datasets={"mine": mine}, data_root=str(tmp_path))
        )
        done = calgrid("check", path)
        assert "mine: train 70, val 10, test 40 images; 2 classes\n" in done.out
        rows = re.findall(r"^  ([01]): (\d+), (\d+), (\d+)$", done.out, re.MULTILINE)
        counts = np.array(rows, int)
        assert counts[:, 0].tolist() == [0, 1]
        assert counts[:, 1:].sum(axis=0).tolist() == [70, 10, 40]
        assert done.err == (
            "Warning: mine has fewer than 10 val images of 2 of 2 classes (0, 1).\n"
            "Warning: protocol 'digits' on mine has few training steps, 4 an epoch "
            "(70 images in batches of 20) and 240 in all; give it a batch_size of at most 7, or "
            "more epochs.\n"
        )

    @pytest.mark.parametrize(("decay", "warns"), [(0.999, True), (0.98, False)])
    def test_warns_of_a_mean_over_more_steps_than_the_training_has(
        self, calgrid, configured, make_config, decay, warns
    ):
        averaged = {"base": "digits", "checkpoints": ["ema"], "ema": {"decay": decay}}
        config = make_config({"protocol": "averaged"}, protocols={"averaged": averaged})
        said = (
            "Warning: the checkpoint ema of protocol 'averaged' is a mean over about 1,000 "
            "steps, and the training on digits has 360; lower ema.decay.\n"
        )
        assert calgrid("check", configured(config)).err == (said if warns else "")

    @pytest.mark.parametrize("classes", [None, [1, 2, 10]])
    def test_says_that_numbered_folders_are_in_the_order_of_text(
        self, succeeds, configured, make_config, tmp_path, classes
    ):
        names = [f"{name}/{row}.png" for name in (1, 2, 10) for row in range(70)]
        write_files(tmp_path / "train", dict.fromkeys(names, b""))
        mine = {"base": "image_folder", "test_size": 60, "val_size": 60, "image_size": 32}
        if classes is not None:
            mine["classes"] = classes
        path = configured(
            make_config({"datasets": ["mine"]}, datasets={"mine": mine}, data_root=str(tmp_path))
        )
        said = "Warning: the classes of mine are in the order of text (1, 10, 2); for that"
        done = succeeds("check", path)
        assert (said in done.err) == (classes is None)


class TestPlans:
    """``--plan``: the specifications of all jobs by folders, and the study's manifest."""

    def test_a_job_that_the_plan_lacks(self, fails, tmp_path):
        plan, out = tmp_path / "plan.json", tmp_path / "out"
        arguments = ("job", "train", "--plan", plan, "--out", out)
        fails(*arguments, parts=[f"calgrid train: The plan {plan} does not exist"])
        write_record(plan, {"jobs": {"other": {}}, "code": {}})
        fails(*arguments, parts=[f"The plan {plan} has no job for {out}", "run the same command"])
        for text in ("[]", "{}"):
            plan.write_text(text)
            fails(*arguments, parts=[f"The plan {plan} has been changed"])
        assert not out.exists()


class TestExit:
    @pytest.fixture
    def ends_with(self, monkeypatch):
        """``calgrid list methods`` ends with an error."""

        def set_to(error):
            def end(_):
                raise error

            monkeypatch.setattr("calgrid.cli.listing.list_kind", end)

        return set_to

    def test_a_run_that_was_stopped_has_a_code_of_its_own(self, calgrid, ends_with):
        ends_with(StoppedError("Stopped by SIGTERM; run again to continue."))
        done = calgrid("list", "methods")
        said = "calgrid list: Stopped by SIGTERM; run again to continue.\n"
        assert (done.code, done.err) == (EXIT_STOPPED, said)

    @pytest.mark.parametrize("error", [KeyError("ours"), TimeoutError(110, "timed out")])
    def test_a_fault_that_is_no_path_of_the_user_shows_its_traceback(
        self, calgrid, ends_with, error
    ):
        ends_with(error)
        with pytest.raises(type(error)):
            calgrid("list", "methods")

    def test_what_the_file_system_says_of_a_path_is_one_sentence(self, fails, ends_with):
        ends_with(FileNotFoundError(2, "No such file", "a/b"))
        fails("list", "methods", parts=["calgrid list: The path a/b cannot be used ... correct it"])
        ends_with(OSError(36, "Too long", "a/b"))
        fails("list", "methods", parts=["The path a/b is too long ... give shorter names"])

    def test_ctrl_c_is_one_line(self, calgrid, ends_with):
        ends_with(KeyboardInterrupt())
        done = calgrid("list", "methods")
        assert (done.code, done.err) == (130, "calgrid list: Interrupted.\n")

    def test_a_reader_that_has_seen_enough_is_no_error(self, start_python):
        process = start_python(
            "import sys\nfrom calgrid.cli import main\nsys.exit(main(['list', 'losses']))"
        )
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 0


def test_threads_are_set_before_libraries_are_imported(succeeds, monkeypatch):
    seen = {}
    monkeypatch.setattr("calgrid.cli.files.metrics", lambda _: seen.update(os.environ))
    succeeds("metrics", "x.npz", "--threads", 3)
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    assert [seen[name] for name in names] == ["3"] * 3


@pytest.mark.parametrize("threads", ["0", "-2", "1.5", "many"])
def test_threads_are_at_least_one_and_resamples_may_be_none(calgrid, threads):
    said = f"argument --threads: must be a whole number of at least 1, got '{threads}'"
    assert said in calgrid("metrics", "x.npz", f"--threads={threads}").err
    said = "argument --bootstrap: must be a whole number of at least 0, got '-5'"
    assert said in calgrid("metrics", "x.npz", "--bootstrap", "-5").err


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("CALGRID_RESUME_SECONDS", "nan", "--resume-every: must be a number of seconds, got 'nan'"),
        ("CALGRID_DEVICE", "foo", "--device: must be one of auto, cpu, cuda, got 'foo'"),
    ],
)
def test_variables_are_checked_where_they_are_used(
    calgrid, succeeds, monkeypatch, tmp_path, name, value, said
):
    monkeypatch.setenv(name, value)
    succeeds("list", "methods")
    done = calgrid("job", "train", "--plan", "p", "--out", tmp_path)
    assert done.code == 2
    assert f"{said} (from the option or the variable {name})" in done.err


def test_errors_are_red_in_a_terminal_that_wants_colours(monkeypatch):
    class Terminal(StringIO):
        def isatty(self):
            return True

    said = []
    for wanted in ("", "1"):
        monkeypatch.setenv("NO_COLOR", wanted)
        monkeypatch.setattr(sys, "stderr", Terminal())
        assert main(["metrics", "nothing.npz"]) == 2
        said.append(sys.stderr.getvalue())
    assert said[0].startswith("\033[31mcalgrid metrics:\033[0m ")
    assert said[1].startswith("calgrid metrics: ")
