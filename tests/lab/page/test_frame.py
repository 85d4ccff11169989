"""The frame of a page: a panel for each device, where its numbers come from, and what stands where there are none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from snippets.lab.experiment import UnknownName, experiments
from snippets.lab.finding.device import Device
from snippets.lab.page.frame import provenance, show
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.schema import NotRecorded, NotTimed, RecordingError
from tests.lab import samples
from tests.lab.samples import EVIL, Markup, assert_only_text, sample, save_all

DEVICE, OTHER = "nvidia-t100", "nvidia-z100-80gb"
MISMATCH = ValueError("ProfilerStep#2 has 6 matmuls instead of three")


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_all(tmp_path, sample(), device=DEVICE)


@pytest.fixture
def root(device: Device, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The recordings that a page's fences read."""
    monkeypatch.setattr("snippets.lab.recording.device.this_device", lambda: None)
    return samples.recordings(monkeypatch, device.root)


def kernels(device: Device, experiment: str, *, unit: str = "") -> str:
    return f"<i>{len(device[experiment].step.kernels)}{unit}</i>"


def raising(device: Device, error: Exception) -> str:
    raise error


@pytest.mark.usefixtures("root")
def test_a_fence_is_marked_as_run() -> None:
    assert show("a-b", kernels, "mlp/eager", unit="k") == '<div class="lab" data-fence="a-b"><i>2k</i></div>'


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("error", "title"),
    [
        (NotRecorded("make record"), "Not recorded yet"),
        (NotTimed("make record"), "Not timed"),
    ],
)
def test_a_fence_says_why_it_is_empty(error: Exception, title: str) -> None:
    content = show("a", raising, error)
    assert content.startswith('<div class="lab" data-fence="a"><div class="admonition warning">')
    assert Markup(content).text.startswith(title)
    assert Markup(content).text.endswith(str(error))


@pytest.mark.usefixtures("root")
def test_a_fence_without_its_recording_gives_the_command() -> None:
    text = Markup(show("a", kernels, "mlp/compiled")).text
    assert text.startswith(f"Not recorded yetno recording 'mlp/compiled' for {DEVICE}; on a machine with this GPU")
    assert text.endswith("run make record CHAPTER=mlp")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (DEFAULT_DEVICE, RecordingError("damaged")),
        (DEFAULT_DEVICE, AttributeError("typo")),
        (DEVICE, UnknownName("no experiment 'mlp/eagr'")),
        (DEFAULT_DEVICE, UnknownName("no experiment 'mlp/eagr'")),
        (DEFAULT_DEVICE, MISMATCH),
        (DEFAULT_DEVICE, ZeroDivisionError("division by zero")),
    ],
)
def test_any_other_error_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: Exception
) -> None:
    save_all(tmp_path, sample(), device=name)
    samples.recordings(monkeypatch, tmp_path)
    with pytest.raises(type(error)) as raised:
        show("a", raising, error)
    assert raised.value is error
    if not isinstance(error, UnknownName):
        assert raised.value.__notes__ == [f"  fence a, on {name}"]


def test_a_page_where_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples.recordings(monkeypatch, tmp_path)
    assert f"no recording &#x27;mlp/eager&#x27; for {DEFAULT_DEVICE}" in show("a", kernels, "mlp/eager")
    with pytest.raises(UnknownName, match="no experiment 'mlp/eagr'; did you mean"):
        show("a", kernels, "mlp/eagr")


class TestSeveralDevices:
    """Pages with more than one recorded device."""

    @pytest.fixture(autouse=True)
    def _two(self, root: Path) -> None:
        save_all(root, sample(), device=OTHER)

    def test_a_panel_for_each(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DEVICE", DEVICE)
        assert show("a-b", lambda device: f"<b>{device.name}</b>") == (
            f'<div class="lab" data-fence="a-b"><div class="device" data-device="{DEVICE}" data-name="T100">'
            f'<b>{DEVICE}</b></div><details class="device" data-device="{OTHER}" data-name="Z100 80GB" '
            f"data-search-exclude><summary>Z100 80GB</summary><b>{OTHER}</b></details></div>"
        )

    @pytest.mark.parametrize(("cell", "held"), [("<i>x</i>", True), ('<i class="guess">x</i>', False)])
    def test_a_large_panel_of_another_device_is_held_back(
        self, monkeypatch: pytest.MonkeyPatch, cell: str, held: bool
    ) -> None:
        monkeypatch.setenv("DEVICE", OTHER)
        content = show("a", lambda device: device.name + cell * 12)
        assert f'data-name="Z100 80GB">{OTHER}<i' in content
        assert (f"<noscript><!-- T100 -->{DEVICE}<i" in content) is held
        assert ('<div class="device other"' in content) is not held
        assert "<noscript>" not in show("b", lambda device: device.name + cell)

    @staticmethod
    def panels() -> list[tuple[str, str]]:
        """The element and the device of each panel, in order."""
        content = show("a", lambda device: device.name)
        found = re.findall(r'<(div|details) class="device" data-device="([^"]+)"', content)
        return [(element, device) for element, device in found]

    @pytest.mark.parametrize(("opened", "folded"), [(DEVICE, OTHER), (OTHER, DEVICE)])
    def test_the_panel_of_the_chosen_device_is_first_and_open(
        self, monkeypatch: pytest.MonkeyPatch, opened: str, folded: str
    ) -> None:
        monkeypatch.setenv("DEVICE", opened)
        assert self.panels() == [("div", opened), ("details", folded)]

    def test_the_panel_of_this_machine_is_open(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("snippets.lab.recording.device.this_device", lambda: OTHER)
        assert self.panels() == [("div", OTHER), ("details", DEVICE)]

    def test_the_default_device_is_first_and_open(self, root: Path) -> None:
        save_all(root, sample(), device=DEFAULT_DEVICE)
        assert self.panels() == [("div", DEFAULT_DEVICE), ("details", DEVICE), ("details", OTHER)]

    def test_what_is_the_same_everywhere_needs_no_panels(self) -> None:
        assert show("a", lambda device: "same") == '<div class="lab" data-fence="a">same</div>'

    def test_what_one_device_lacks_is_in_its_panel(self, root: Path) -> None:
        save_all(root, sample("mlp/compiled"), device=DEVICE)
        content = show("a", kernels, "mlp/compiled")
        assert content.index("<i>2</i>") < content.index(f"no recording &#x27;mlp/compiled&#x27; for {OTHER}")


def record_all(device: Device) -> None:
    save_all(device.root, *(sample(experiment.id, has_trace=False) for experiment in experiments("mlp")), device=DEVICE)


def test_provenance(device: Device) -> None:
    record_all(device)
    assert provenance(device, "mlp") == (
        '<details class="provenance" data-search-exclude><summary>Measured on an <strong>NVIDIA Sample</strong>, '
        '<time datetime="2026-10-01T12:00:00Z">2026-10-01</time></summary><p>driver 580.1, CUDA 13.0 · '
        "python 3.12.3, torch 2.11.0 · commit <code>0123abc</code> · "
        '<span class="mode mode-replayed">replayed</span></p></details>'
    )


@pytest.mark.parametrize(("name", "text"), [("Tesla T4", "on a Tesla T4,"), ("AMD X", "on an AMD X,")])
def test_provenance_names_any_device(device: Device, name: str, text: str) -> None:
    save_all(device.root, sample(environment=samples.environment(device=name)), device=DEVICE)
    assert f"Measured {text} 2026-10-01" in Markup(provenance(device, "mlp")).text


def test_provenance_is_of_the_newest(device: Device) -> None:
    new = samples.environment(date="2026-11-01T00:00:00Z", commit="new")
    save_all(device.root, sample("mlp/new", environment=new), device=DEVICE)
    assert "<code>new</code>" in provenance(device, "mlp")


@pytest.mark.parametrize(
    ("here", "fingerprint", "mode"),
    [
        (None, None, "replayed"),
        ("nvidia-other", None, "replayed"),
        (DEVICE, None, "live"),
        (None, "0" * 16, "stale"),
        (DEVICE, "0" * 16, "stale"),
    ],
)
def test_the_three_modes(
    device: Device, monkeypatch: pytest.MonkeyPatch, here: str | None, fingerprint: str | None, mode: str
) -> None:
    monkeypatch.setattr("snippets.lab.page.frame.this_device", lambda: here)
    save_all(device.root, sample("mlp/second"), sample("mlp/third"), device=DEVICE)
    if fingerprint:
        save_all(device.root, sample(fingerprint=fingerprint), device=DEVICE)
    content = provenance(device, "mlp")
    assert f'<span class="mode mode-{mode}">{mode}</span>' in content
    assert ("Recorded for an older version of this code" in content) is (mode == "stale")
    if mode == "stale":
        text = Markup(content.partition("</details>")[2]).text  # outside the fold
        assert "1 of 3 recordings were made before the code on this page changed." in text
        assert "run make record CHAPTER=mlp." in text


def test_provenance_of_a_chapter_that_is_not_recorded(device: Device) -> None:
    """One line and the command, without the names of all experiments."""
    assert Markup(provenance(device, "linear")).text == (
        "Not recorded yetThe book has no T100 recording of this chapter: run make record CHAPTER=linear."
    )


@pytest.mark.usefixtures("root")
def test_a_fence_of_a_chapter_that_is_not_recorded_is_one_line() -> None:
    assert Markup(show("linear-kernels", kernels, "linear/eager")).text == "Not recorded on the T100."
    assert Markup(show("mlp-kernels", kernels, "mlp/compiled")).text.startswith("Not recorded yet")


def test_provenance_of_what_is_recorded_in_part(device: Device) -> None:
    ids = ", ".join(experiment.id for experiment in experiments("mlp") if experiment.id != "mlp/eager")
    content = provenance(device, "mlp")
    fold, _, below = content.partition("</details>")
    assert Markup(fold).text.startswith("Measured on an NVIDIA Sample, ")
    assert Markup(below).text == (
        f"Not recorded yetThe book has no T100 recording of {ids}. On a machine with that GPU, run make record "
        "CHAPTER=mlp. On a machine with another CUDA GPU, the same command records for the other GPU. "
        "Without a GPU, you can do everything except record."
    )
    record_all(device)
    assert "Not recorded yet" not in provenance(device, "mlp")


@pytest.mark.parametrize("name", EVIL)
def test_untrusted_provenance(device: Device, name: str) -> None:
    fields = dict.fromkeys(("device", "driver", "cuda", "commit", "date"), name)
    environment = samples.environment(versions={name: name}, **fields)
    save_all(device.root, sample(fingerprint="stale", environment=environment), device=DEVICE)
    content = provenance(device, "mlp")
    assert_only_text(content, name)
    assert Markup(content).text.count(name) >= 4
    assert dict(Markup(content).attributes)["datetime"] == name


REORDERING = "a\u202eb\u2066c\x1b[31md\x9be\ud800f"
AS_TEXT = "a\\u202eb\\u2066c\\x1b[31md\\x9be\\ud800f"


@pytest.mark.usefixtures("root")
def test_characters_that_hide_or_reorder_text_are_escaped() -> None:
    for content in (show("a", lambda device: REORDERING), show("a", raising, NotRecorded(REORDERING))):
        assert AS_TEXT in content
    assert AS_TEXT in show("a", raising, ValueError(REORDERING))


@pytest.mark.parametrize(
    "error", [ValueError("six matmuls"), RecordingError("damaged"), AttributeError("typo"), RecursionError("deep")]
)
@pytest.mark.usefixtures("root")
def test_what_does_not_fit_is_one_sentence(error: Exception) -> None:
    text = Markup(show("a", raising, error)).text
    assert text.startswith(
        "Not shown for this deviceWhat is recorded for the T100 does not fit this part of the page: "
    )
    assert text.endswith(".")
