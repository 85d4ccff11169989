"""Recorded data has no directories and host names of the machine, and loses nothing else."""

from __future__ import annotations

import pytest

from snippets.lab.recording.scrub import scrub


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/alice/book/model.py(12): forward", "model.py(12): forward"),
        ("see /tmp/torchinductor_alice/ab/cab.py and ~/x/y.py.", "see cab.py and y.py."),
        ("/srv/.cache/a-b_c/d+e/f@1/g.so", "g.so"),
        ("PATH=/usr/bin/:/home/alice/bin/python", "PATH=:python"),
        ("File '/opt/venv/lib/python3.12/site-packages/torch/nn.py'", "File 'nn.py'"),
        ("file:///home/alice/trace.json", "trace.json"),
        ("/home/alice", ""),
        ("of /Users/alice: 3", "of : 3"),
        ("~/notes.txt", "~/notes.txt"),
        ("~/secret/notes.txt", "notes.txt"),
    ],
)
def test_directories_are_scrubbed(text: str, expected: str) -> None:
    assert scrub(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Torch-Compiled Region: 0/0",
        "## Call CompiledFxGraph fy6t/abc ##",
        "void at::native::vectorized_elementwise_kernel<4, f<float>, std::array<char*, 2ul> >(int, float)",
        "reduce_kernel<512, 1, ReduceOp<a/b/c>>",
        "https://github.com/pytorch/pytorch/issues/1",
        "http://x/a/b/",
        "64x64 / 4096",
        "a / b / c",
        "[[8192, 768], [768, 3072]]",
        "snippets/mlp/model.py",
        "s/GB/s",
        "/",
        "//",
        "triton_poi_fused__unsafe_view_gelu_mul_0",
        "",
    ],
)
def test_text_other_than_a_directory_stays(text: str) -> None:
    assert scrub(text) == text


def test_scrubbing_goes_everywhere_and_keeps_the_rest() -> None:
    given = {"/home/a/k": ["/tmp/x/f.py", {"n": 1, "t": ("/a/b", None, 1.5, True)}], "host": "gpu7.lan said gpu7"}
    assert scrub(given, ("gpu7.lan", "gpu7")) == {
        "k": ["f.py", {"n": 1, "t": ["b", None, 1.5, True]}],
        "host": "host said host",
    }


def test_host_names_inside_other_words_are_left_alone() -> None:
    given = {"cat": "gpu_memcpy", "name": "gpumatmul gpu-1 gpu.lan (gpu) gpu", "cpu": "my-gpu"}
    expected = {"cat": "gpu_memcpy", "name": "gpumatmul gpu-1 host.lan (host) host", "cpu": "my-gpu"}
    assert scrub(given, ("gpu",)) == expected
    assert scrub("a.b axb", ("a.b",)) == "host axb"
