"""``casspec system``, in this process."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from cassandra_spec.commands.__main__ import main
from cassandra_spec.drafting import Report
from cassandra_spec.lab.system.acceptance import Acceptance
from cassandra_spec.lab.system.costs import load_format
from cassandra_spec.lab.system.decoding import Setup, estimate
from cassandra_spec.lab.system.device import known_devices, load_device
from cassandra_spec.lab.system.figures.plots import plots
from cassandra_spec.lab.system.figures.silicon import REPORTS
from cassandra_spec.lab.system.measured import load_acceptance
from cassandra_spec.lab.system.report import everything, markdown, page
from cassandra_spec.lab.system.workload import Workload, known_models, load_model

Output = pytest.CaptureFixture[str]
RECORD = "lab/system/records/acceptance.txt"
SOURCE = f"of SmolLM2-135M-Instruct, not of this model (measured, {RECORD}: mx-4)"
QUESTION = "system estimate --device npu --model qwen3-4b --scheme mx --gamma 3"


def setup(**changes: object) -> Setup:
    values: dict[str, object] = {
        "rate": load_format("mx").acceptance[3],
        "kind": "drafted",
        "batch": 1,
        **changes,
    }
    return Setup(
        device=load_device("npu"),
        model=load_model("qwen3-4b"),
        workload=Workload(prompt=222, output=5708, batch=int(str(values["batch"]))),
        cost=load_format("mx"),
        acceptance=Acceptance(
            rate=float(str(values["rate"])),
            kind="conditional" if values["kind"] == "conditional" else "drafted",
            source="" if "rate" in changes else SOURCE,
        ),
        gamma=3,
    )


def test_estimate_prints_one_page(capsys: Output) -> None:
    assert main(QUESTION.split()) == 0
    assert capsys.readouterr().out == page(estimate(setup())) + "\n"


def test_an_acceptance_that_was_not_given_names_its_model(capsys: Output) -> None:
    assert main(QUESTION.split()) == 0
    assert f"  this acceptance is {SOURCE}\n" in capsys.readouterr().out
    assert main([*QUESTION.split(), "--acceptance", "0.5"]) == 0
    assert "this acceptance is" not in capsys.readouterr().out


def test_a_context_that_does_not_fit_has_no_speed(capsys: Output) -> None:
    words = [*QUESTION.split(), "--output", "1000000"]  # BF16 has room for 806,218 tokens
    assert main(words) == 0
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()[3:6]]
    assert "does not fit" in [cell.strip() for cell in rows[0]]
    assert not any("does not fit" in cell for row in rows[1:] for cell in row)
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tokens_per_second"]["bf16"] is None
    assert found["tokens_per_second"]["compressed"] > 0
    assert set(found["speedup"]) - {"speculation_over_compressed"} == {
        name for name, value in found["speedup"].items() if value is None
    }
    assert main([*words, "--batch", "2"]) == 0
    text = capsys.readouterr().out
    assert text.count("does not fit") == 3
    assert "prompts and outputs have 2,000,444 tokens, whose keys and values must fit" in text


def test_bits_of_a_packed_directory_are_those_of_the_file(
    llama: Path, tmp_path: Path, capsys: Output
) -> None:
    flags = ["--scheme", "mx", "--truncated", "2", "--keep", "lm_head.weight", "--quiet"]
    assert main(["pack", str(llama), str(tmp_path / "p"), "--jobs", "1", *flags]) == 0
    assert main(["inspect", str(tmp_path / "p"), "--json"]) == 0
    bits = json.loads(capsys.readouterr().out)["bits"]
    question = QUESTION.replace("qwen3-4b", str(tmp_path / "p"))
    assert main(question.split()) == 0
    text = capsys.readouterr().out
    draft = bits["speculation"] + bits["directory"]
    expected = f"weights: {draft:g} bits in drafts, {bits['total']:g} in all (of {tmp_path / 'p'}"
    assert expected in text
    assert "head: 16 bits in drafts, 16 in all (of" in text
    assert main(question.replace("mx", "exact").split()) == 2
    assert capsys.readouterr().err.startswith("casspec: error: scheme must be one of mx, as in")


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


ROW = {
    "scheme": "mx",
    "label": "mx G32",
    "gamma": 3,
    "acceptance_rate": 0.5,
    "draft_bits": 5.25,
    "target_bits": 9.26,
}


def test_estimate_takes_a_table_of_acceptance(tmp_path: Path, capsys: Output) -> None:
    table = tmp_path / "acceptance.json"
    table.write_text(json.dumps({"rows": [ROW, {**ROW, "label": "mx G16"}]}))
    words = f"{QUESTION} --acceptance-file {table}".split()
    assert main([*words, "--label", "mx G32", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    cost = load_acceptance(table)[0].cost(load_format("mx"))
    wanted = dataclasses.replace(setup(rate=0.5), cost=cost)
    assert told["speedup"] == estimate(wanted).to_dict()["speedup"]
    for flags, message in (
        ([], "label must be given, as there are several: 'mx G32', 'mx G16'"),
        (["--acceptance", "0.5"], "acceptance must not be given beside an acceptance file"),
        (["--scheme", "bf16"], "acceptance file must have rows of bf16, not none"),
    ):
        assert main([*words, *flags]) == 2
        assert message in capsys.readouterr().err
    assert main([*QUESTION.split(), "--label", "x"]) == 2
    assert "label must be given with an acceptance file" in capsys.readouterr().err


def test_estimate_takes_what_make_sim_printed(tmp_path: Path, capsys: Output) -> None:
    sim = tmp_path / "sim.txt"
    sim.write_text("mx draft 1 1 1 3.25\nmx target 1 1 1 3.00\n")
    assert main([*QUESTION.split(), "--sim-file", str(sim)]) == 0
    assert "40 decoders of 3.25 (draft) and 3 (target) values" in capsys.readouterr().out
    sim.write_text("PASS")
    assert main([*QUESTION.split(), "--sim-file", str(sim)]) == 2
    assert "must have the table of values/cycle" in capsys.readouterr().err


def test_estimate_takes_the_lengths_of_table_i(capsys: Output) -> None:
    assert main([*QUESTION.split(), "--workload", "phi-3.8b-reasoning"]) == 0
    assert "230 tokens in, 8189 out" in capsys.readouterr().out
    assert main([*QUESTION.split(), "--workload", "llama3-8b", "--output", "7"]) == 0
    assert "222 tokens in, 7 out" in capsys.readouterr().out
    assert main([*QUESTION.split(), "--workload", "x"]) == 2
    assert "workload must be one of deepseek-r1-distill-llama-8b, llama3-8b" in (
        capsys.readouterr().err
    )


def test_reproduce_takes_reports_and_acceptance(tmp_path: Path, capsys: Output) -> None:
    table, synthesis = tmp_path / "acceptance.json", tmp_path / "synth"
    table.write_text(json.dumps({"rows": [ROW]}))
    synthesis.mkdir()
    report = json.loads(next(REPORTS.glob("*_l8_*.json")).read_text())
    (synthesis / "small.json").write_text(json.dumps({**report, "speed_total": 1000.0}))
    words = f"system reproduce --synthesis {synthesis} --acceptance-file {table}".split()
    assert main(words) == 0
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines() if line.startswith("8 lanes, unary")]
    assert all("1.0" in row for row in rows)
    assert len(rows) == 2
    assert "16 lanes" not in out
    assert "\nmx G32 " in out
    table.write_text("{}")
    assert main(words) == 2
    assert f"{table} must have one list of rows" in capsys.readouterr().err


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
