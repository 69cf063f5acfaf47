"""``casspec system``, in this process."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path

import pytest

from casspec.__main__ import main
from casspec.arguments import build_parser
from model.speculative.report import Report
from system import Acceptance, Setup, Workload, estimate, load_device, load_model
from system.costs import load_format
from system.device import known_devices
from system.plots import plots
from system.report import everything, markdown, page
from system.workload import known_models

Output = pytest.CaptureFixture[str]
QUESTION = "system estimate --device npu --model qwen3-4b --scheme mx --gamma 3"


def setup(**changes: object) -> Setup:
    values: dict[str, object] = {"rate": 0.77, "kind": "drafted", "batch": 1, **changes}
    return Setup(
        device=load_device("npu"),
        model=load_model("qwen3-4b"),
        workload=Workload(prompt=222, output=5708, batch=int(str(values["batch"]))),
        cost=load_format("mx"),
        acceptance=Acceptance(
            rate=float(str(values["rate"])),
            kind="conditional" if values["kind"] == "conditional" else "drafted",
        ),
        gamma=3,
    )


def test_estimate_prints_one_page(capsys: Output) -> None:
    assert main(QUESTION.split()) == 0
    assert capsys.readouterr().out == page(estimate(setup())) + "\n"


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ("", setup()),
        ("--acceptance 0.5", setup(rate=0.5)),
        ("--acceptance 0.5 --kind conditional", setup(rate=0.5, kind="conditional")),
        ("--batch 4", setup(batch=4)),
    ],
)
def test_estimate_prints_json(flags: str, wanted: Setup, capsys: Output) -> None:
    assert main([*QUESTION.split(), *flags.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(estimate(wanted).to_dict()))


def test_estimate_takes_the_report_of_a_run(tmp_path: Path, capsys: Output) -> None:
    run = tmp_path / "run.json"
    run.write_text(json.dumps({"replies": [], "report": {"acceptance_rate": 0.5, "gamma": 3}}))
    words = QUESTION.replace("--gamma 3", f"--report {run}").split()
    assert main(words) == 0
    assert capsys.readouterr().out == page(estimate(setup(rate=0.5))) + "\n"
    assert main([*words, "--acceptance", "0.5"]) == 2
    assert "acceptance must not be given beside a report" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "must have a report with acceptance_rate and gamma"),
        ({"report": {"gamma": 3}}, "must have a report with acceptance_rate and gamma"),
        ({"report": {"gamma": 3, "acceptance_rate": None}}, "must be of a run that drafted"),
        ({"report": {"gamma": 9, "acceptance_rate": 0.5}}, "gamma must be an integer, 1 to 8"),
        ({"report": {"gamma": 3, "acceptance_rate": "x"}}, "acceptance must be a number"),
    ],
)
def test_wrong_reports(
    content: dict[str, object], message: str, tmp_path: Path, capsys: Output
) -> None:
    run = tmp_path / "run.json"
    run.write_text(json.dumps(content))
    assert main(QUESTION.replace("--gamma 3", f"--report {run}").split()) == 2
    err = capsys.readouterr().err
    assert message in err
    assert str(run) in err


def test_the_report_has_the_names_that_the_runtime_writes() -> None:
    assert {"acceptance_rate", "gamma"} <= {field.name for field in dataclasses.fields(Report)}


def test_estimate_takes_files(tmp_path: Path, capsys: Output) -> None:
    device, model = tmp_path / "own.toml", tmp_path / "config.json"
    device.write_text(known_devices()["npu"].read_text().replace("the paper's NPU", "our chip"))
    model.write_text(known_models()["qwen3-4b"].read_text())
    words = QUESTION.replace("npu", str(device)).replace("qwen3-4b", str(tmp_path))
    assert main(words.split()) == 0
    assert capsys.readouterr().out.startswith("Qwen3-4B on our chip")


def test_reproduce_prints_and_writes_everything(tmp_path: Path, capsys: Output) -> None:
    assert main(["system", "reproduce", "--out", str(tmp_path / "new/out")]) == 0
    out = capsys.readouterr().out
    sections = list(everything())
    for name, tables in sections:
        assert f"== {name} ==" in out
        assert all(table.text() in out for table in tables)
    written = tmp_path / "new/out/reproduction.md"
    assert written.read_text(encoding="utf-8") == markdown(sections)
    drawn = {path.name: path.read_text(encoding="utf-8") for path in written.parent.glob("*.svg")}
    assert drawn == {f"{plot.name}.svg": plot.svg() for plot in plots()}
    assert all(f"({name})" in written.read_text(encoding="utf-8") for name in drawn)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--device npx", "device must be one of a .toml file, agx-orin, npu, rtx4090, not 'npx'"),
        ("--model gpt", "deepseek-r1-distill-llama-8b, its directory, llama-3.2-1b"),
        ("--scheme zip", "scheme must be one of bf16, cassandra-1, cassandra-2, exact"),
        ("--gamma 4", "acceptance must be given: mx has been measured at 3, 5, not 4"),
        ("--gamma 9 --acceptance 0.5", "gamma must be an integer, 0 to 8, not 9"),
        ("--acceptance 1.5", "acceptance must be 0 to 1, not 1.5"),
        ("--kind conditional", "acceptance must be given with --kind conditional"),
        ("--batch 17", "batch must be an integer, 1 to 16, not 17"),
        ("--device none.toml", "none.toml: No such file or directory"),
    ],
)
def test_bad_input_is_one_line(flags: str, message: str, capsys: Output) -> None:
    assert main([*QUESTION.split(), *flags.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("casspec: error: ")
    assert message in line


@pytest.mark.parametrize("command", ["system", "system estimate", "system reproduce"])
def test_the_examples_of_the_help_are_commands(command: str, capsys: Output) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*command.split(), "--help"])
    assert caught.value.code == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    examples = [line for line in lines if line.startswith("casspec ")]
    assert examples
    for example in examples:
        build_parser().parse_args(shlex.split(example)[1:])
