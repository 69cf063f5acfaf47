"""Rules of other people: what is rewritten, what is refused, and what the situations name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.verif.mutation.catalogue import mutations
from cassandra_spec.verif.rules.__main__ import PLANTED, main
from cassandra_spec.verif.rules.proofs import PROOFS, TOPS
from cassandra_spec.verif.rules.situations import situations
from cassandra_spec.verif.rules.sva import properties_of, rewrite, without_properties
from cassandra_spec.verif.rules.watched import CHANNELS, WATCHED, watched

PROPERTIES = """
property kept(valid, ready, /* a comment */ load); // another
   valid && !ready |-> ##1 $stable(load);
endproperty // kept
property soon(valid, ready, limit);
   (valid |-> ##[1:limit] ready);
endproperty : soon
"""
MODULE = """
module rules(input wire CLK, input wire RST, input wire v, r, input wire [7:0] d);
   default clocking main @(posedge CLK); endclocking
   generate
      if (1) begin
         RULE
      end
   endgenerate
endmodule
"""


def rewritten(rule: str) -> str:
    """Return the text that stands where a rule stood."""
    text = rewrite(MODULE.replace("RULE", rule), properties_of([PROPERTIES])).text
    [line] = re.findall(r"begin\s+(.*?)\s+end\s+endgenerate", text, re.DOTALL)
    return str(line)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (
            'a: assert property(disable iff(!RST) kept(v, r, d)) else $error("(", "b");',
            "always @(posedge CLK) if (started__ && !(!RST) && $past(!(!RST) && (v && !r)))"
            " a: assert ($stable(d));",
        ),
        (
            "a: assume property((v && r) |-> !d[0]);",
            "always @(posedge CLK) if (1'b1 && ((v && r))) a: assume (!d[0]);",
        ),
        (
            "a: assert property(disable iff (!RST) kept(v, r, (d & 8'h0f))) else $error();",
            "always @(posedge CLK) if (started__ && !(!RST) && $past(!(!RST) && (v && !r)))"
            " a: assert ($stable(((d & 8'h0f))));",
        ),
        (
            "a: assert property(v |-> not d[0]);",
            "always @(posedge CLK) if (1'b1 && (v)) a: assert (! d[0]);",
        ),
        (
            "a: assert property(d < 4);",
            "always @(posedge CLK) if (1'b1 && (1'b1)) a: assert (d < 4);",
        ),
    ],
)
def test_a_rule_becomes_an_immediate_assertion(rule: str, expected: str) -> None:
    assert rewritten(rule) == expected


def test_a_rule_with_a_time_limit_is_left_out_by_name() -> None:
    text = MODULE.replace("RULE", "late: assert property(soon(v, r, 4)) else $error();")
    outcome = rewrite(text, properties_of([PROPERTIES]))
    assert outcome.left_out == ("late",)
    assert "late" not in outcome.text


@pytest.mark.parametrize(
    "body", ["v |=> r", "v ##1 r |-> d", "v |-> ##1 r ##1 d", "v |-> s_eventually r"]
)
def test_a_rule_of_another_form_is_refused(body: str) -> None:
    with pytest.raises(CassandraError, match=r"implication over one cycle.*\(odd\)"):
        rewritten(f"odd: assert property({body});")


def test_a_module_without_a_clock_is_refused() -> None:
    with pytest.raises(CassandraError, match="default clocking"):
        rewrite("module m; endmodule", {})


def test_named_properties_are_removed() -> None:
    assert without_properties(PROPERTIES).strip() == ""


@pytest.mark.parametrize("name", TOPS)
def test_every_axi_port_has_the_rules_of_its_channels(name: str) -> None:
    top = TOPS[name]()
    text = watched(top, list(situations(top).values()))
    members = set(top.signature.members)
    for port in ("m_axi", "s_axil"):
        for channel, (file, _) in CHANNELS.items():
            has = f"{port}_{channel.lower()}valid" in members
            assert (f"amba_axi4_{file}_channel #(.cfg({port}_of)) {port}_" in text) == has
    for member in members:
        if "axi_" in member or "axil_" in member:
            assert len(re.findall(rf"\({member}\)", text)) >= 2, member  # the top and a rule
    assert text.startswith(f"module {WATCHED}(")


@pytest.mark.parametrize("name", TOPS)
def test_the_situations_cover_what_the_page_names(name: str) -> None:
    names = " ".join(situations(TOPS[name]()))
    for part in (
        "reset while VALID",
        "READY before",
        "late",
        "SLVERR",
        "DECERR",
        "4 KiB",
        "at once",
    ):
        assert part in names
    assert names.count("WSTRB") == 16


def test_planted_faults_exist() -> None:
    assert len(mutations(list(PLANTED))) == len(PLANTED)
    assert set(PLANTED.values()) <= {proof.name for proof in PROOFS}


def test_another_folder_is_no_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rules", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "must be a checkout of SVA-AXI4-FVIP" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
