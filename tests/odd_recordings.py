"""Recordings and outputs of a lab as a stranger could make them: odd text in every place for text."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from itertools import cycle
from pathlib import Path
from typing import Any

import msgspec

from tests.lab.samples import BOOK

PLAIN, EVERYWHERE = "ACME /opt/a11", "ACME /home/alice"
"""Two devices: odd in what is only shown, so that every part of a page is; and odd in every text."""
TEXTS = (
    "/home/alice/x.py", "/opt/a/b.cu", "file:///tmp/x", "Traceback (most recent call last):", "python exec=on",
    '```python exec="on" id="x"', "#!fig x", "`#!src x`", '--8<-- "x"', "javascript:x", "data:text/html,x", "ftp://x/",
    "url(#nowhere)", "url(https://example.org/x)", "@import 'https://example.org/x.css'", "<script>x()</script>",
    '</noscript><p id="x">', "<noscript>", "nvidia-sample", 'class="lab-sample"', "[x](nowhere.md)", "![x](x.png)",
    "[x]: /x", "{{ x }}", "{% x %}", "<!-- x", "-->", "&lt;", "***", "::error::x", "##[error]x", "</style>", "]]>",
    "\u202e\x1b[31m", "\0",
)  # fmt: skip
ODD = " ".join(TEXTS)
KEPT = {"chapter", "experiment", "session", "date", "digest", "trace_sha256"}
"""What a recording may not have otherwise."""
Json = dict[str, Any]


def odd(value: Any, text: str = ODD) -> Any:
    """The value with odd text behind each of its texts."""
    if isinstance(value, dict):
        return {key: each if key in KEPT else odd(each, text) for key, each in value.items()}
    if isinstance(value, list):
        return [odd(each, text) for each in value]
    return f"{value} {text}" if isinstance(value, str) else value


ODD_EVENTS = 30_000
"""Of the first events of a trace, each has an odd name."""


def recording(content: Json, device: str) -> Json:
    """A recording of this device."""
    found = {key: each for key, each in content.items() if key != "trace_sha256"}
    if device == EVERYWHERE:
        found = odd(found)
    else:
        found["circumstances"] = odd(found["circumstances"])
        found["points"] = [{**point, "disturbed": ODD} for point in found["points"]]
    found["circumstances"] |= {"device": device}
    found["circumstances"]["other_processes"] = [ODD]
    return found


def trace(content: Json, device: str) -> Json:
    """A trace of this device: kernels are templates of odd things; everywhere, operators have odd names and inputs."""
    events = []
    for index, (event, text) in enumerate(zip(content["traceEvents"], cycle(TEXTS), strict=False)):
        if index >= ODD_EVENTS:  # a recording may not be larger than its limit
            pass
        elif event.get("cat") == "kernel":
            event = {**event, "name": f"{event['name']}<{text}>(int)"}
        elif device == EVERYWHERE and event.get("cat") in ("cpu_op", "user_annotation", "python_function"):
            name = event["name"] if event["name"].startswith("ProfilerStep") else f"{event['name']} {text}"
            event = {**event, "name": name, "args": odd(event.get("args", {}), text)}
        events.append(event)
    return {**content, "traceEvents": events}


def archive(path: Path, device: str, chapters: tuple[str, ...] = ()) -> Path:
    """Pack the book's recordings of these chapters, or of all, as if this device had made them."""
    folder = device.lower().replace(" /", "-").replace(" ", "-").replace("/", "-")
    members: dict[str, bytes] = {}
    for file in sorted((BOOK.root / BOOK.name).glob("*/*.*")):
        if not chapters or file.parent.name in chapters:
            change, packed = (trace, gzip.decompress) if file.suffix == ".gz" else (recording, bytes)
            content = msgspec.json.encode(change(msgspec.json.decode(packed(file.read_bytes())), device))
            content = gzip.compress(content, 6, mtime=0) if file.suffix == ".gz" else content
            members[f"{folder}/{file.parent.name}/{file.name}"] = content
    return write(path, members)


def lab_archive(path: Path, name: str) -> Path:
    """Pack a lab of the book with odd outputs."""
    content = json.loads((BOOK.root.parent / f"labs/{name}.ipynb").read_bytes())
    texts = [escape(text) for text in TEXTS if text != "\0"]
    html = "".join(f'<p title="{text}">{text}</p>' for text in texts)
    for cell in content["cells"]:
        if cell.get("outputs"):
            data = {"text/plain": ODD, "text/html": html}
            value = {"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": data}
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": f"{ODD}\n"}, value]
    info = content["metadata"]["recording"]
    info["circumstances"] = {**odd(info["circumstances"]), "device": info["circumstances"]["device"]}
    return write(path, {f"{BOOK.name}/labs/{name}.ipynb": json.dumps(content).encode()})


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def write(path: Path, members: dict[str, bytes]) -> Path:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    path.write_bytes(gzip.compress(buffer.getvalue(), 1, mtime=0))
    return path
