"""What the page says about transformers' `generate` with the decode kernels, on sample recordings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from snippets.decode_kernels.findings import in_transformers
from snippets.lab.finding.book import figure
from snippets.lab.finding.device import Device
from snippets.lab.recording.schema import NotTimed
from tests.chapters.decode_kernels import samples
from tests.chapters.decode_kernels.test_findings import cells, changed, status
from tests.lab.sample_recordings import save_samples


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    return save_samples(tmp_path_factory.mktemp("samples"), samples.recordings())


def generate_rows(device: Device) -> list[list[str]]:
    rows = in_transformers.transformers_table(device).split("<tr")[2:]
    return [cells(f"<tr{row}", re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row)[0]) for row in rows]


def test_rows_of_generate(device: Device) -> None:
    assert generate_rows(device) == [
        ["dynamic cache", "plain layers", "15.5 ms", "970", "63 of 64", "–"],
        ["dynamic cache", "our layers", "8.00 ms", "200", "62 of 64", "64 of 64"],
        ["static cache, not compiled", "plain layers", "20.0 ms", "980", "63 of 64", "–"],
        ["static cache, not compiled", "our layers", "9.00 ms", "210", "62 of 64", "51 of 64"],
        ["static cache, compiled", "plain layers", "3.00 ms", "420", "63 of 64", "–"],
        ["static cache, compiled", "our layers", "2.30 ms", "156", "62 of 64", "51 of 64"],
    ]
    expected = {
        "generate_plain_kernels": "970",
        "generate_our_kernels": "200",
        "generate_fewer_of_a_layer": "35",
        "generate_compiled_saves": "23.3 %",
    }
    assert {name: figure(f"decode_kernels.{name}", device).text for name in expected} == expected


def test_layers_that_ran_without_the_kernels_say_why(device: Device, tmp_path: Path) -> None:
    data = samples.in_transformers("dynamic", "static eager")
    why = "a token ran 0 of the decode kernels, not 110"
    data["ways"]["dynamic"]["ours"] = {"stopped": why}
    altered = changed(device, tmp_path, data={"in_transformers": data})
    rows = generate_rows(altered)
    assert rows[0][2:] == ["15.5 ms", "970", "63 of 64", "–"]
    assert why in rows[1][2]
    assert rows[1][3:] == ["–"] * 3
    assert [status(altered, claim_id) for claim_id in ("DK38", "DK39", "DK40")] == ["not measured"] * 3
    assert status(altered, "DK41") == "holds"


def test_without_transformers_the_page_says_so(device: Device, tmp_path: Path) -> None:
    missing_packages = {"missing": "needs transformers: pip install transformers==5.17.0"}
    names_of_both = ("in_transformers", "in_transformers_compiled")
    altered = changed(device, tmp_path, data=dict.fromkeys(names_of_both, missing_packages))
    assert all("needs transformers" in row[2] for row in generate_rows(altered))
    assert status(altered, "DK41") == "not measured"


def test_equal_answers_have_no_gap(device: Device, tmp_path: Path) -> None:
    data = samples.in_transformers("static")
    data["ways"]["static"] |= {"gap": 0.01, "largest_error": 0.0}
    altered = changed(device, tmp_path, data={"in_transformers_compiled": data})
    assert in_transformers.gap_over_error(device, "dynamic") == 0
    assert in_transformers.gap_over_error(device, "static") == pytest.approx(0.5)
    with pytest.raises(NotTimed, match="don't differ from float32"):
        in_transformers.gap_over_error(altered, "static")
