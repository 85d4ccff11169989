"""A recording is stale when a definition that its experiment reaches has changed, in any file, and only then."""

from __future__ import annotations

import functools
import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from snippets.lab.experiment import Experiment, chapters, experiments, find
from snippets.lab.recording import fingerprint as module
from snippets.lab.recording.device import PROJECT
from snippets.lab.recording.fingerprint import PROTOCOL, SOURCES, MeasuredCode, fingerprint, is_stale, text_fingerprint
from snippets.lab.recording.reach import Code
from tests.lab.samples import sample

Planted = Callable[[dict[str, str]], None]
BOOK = {
    "one/model.py": '''\
"""A model."""

import torch
from torch.nn import functional as F

from .kernels import kernel

SCALE = 0.5
UNUSED = 1


def tagged(cls):
    return cls


@tagged
class Layer(torch.nn.Module):
    """A layer."""

    width = 4

    def forward(self, x, slope=0.1):
        """Run it."""
        return kernel(F.gelu(x) * SCALE * self.width + slope)


class Other(torch.nn.Module):
    def forward(self, x):
        return x
''',
    "one/kernels.py": """\
import triton
import triton.language as tl


@triton.jit
def callee(x, BLOCK: tl.constexpr):
    return x + 1


@triton.jit
def kernel(x, BLOCK: tl.constexpr = 64):
    return callee(x, BLOCK)


@triton.jit
def unused_kernel(x):
    return x
""",
    "one/experiments.py": """\
from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING

from snippets.lab.experiment import Experiment, Subject, Work
from snippets.one import registry

if TYPE_CHECKING:
    from torch import Tensor

TABLE = {}
for ROW in (1, 2):
    TABLE[ROW] = ROW * 2
NAMES = []
NAMES.append("one")


def helper(x: Tensor) -> Tensor:
    return x


def layer(device, size):
    from snippets.one.model import Layer

    return Subject(step=helper(Layer()), inputs=lambda: TABLE[size], reference=lambda x: x)


def other(device, size):
    from snippets.one import model as m

    return Subject(step=m.Other(), inputs=lambda: (), reference=lambda x: x)


def named(device, size, kind):
    return getattr(registry, f"make_{kind}")(size)


def tuned(device, size):
    return json.loads(Path(__file__).with_name("tuned.json").read_text())


def least(size):
    return Work(bytes=size)


def _experiment(name, make, **parameters):
    sizes = {"size": 1} | parameters
    return Experiment(chapter="one", name=name, label="step", make=make, work=least, parameters=sizes)


EXPERIMENTS = (
    _experiment("layer", layer),
    _experiment("other", other),
    _experiment("named", functools.partial(named, kind="plain")),
    _experiment("tuned", tuned),
)
""",
    "one/registry.py": """\
MADE = {}


def register(function):
    MADE[function.__name__] = function
    return function


def make_plain(size):
    return size


def make_wide(size):
    return 2 * size


def neighbor(size):
    return 3 * size
""",
    "one/tuned.json": '{"tile": 64}\n',
    "two/experiments.py": """\
from snippets.lab.experiment import Experiment, Work
from snippets.shared import *


def borrowed(device, size):
    return borrow(size)


EXPERIMENTS = (
    Experiment(
        chapter="two",
        name="borrowed",
        label="step",
        make=borrowed,
        work=lambda size: Work(bytes=size),
        parameters={"size": 1},
    ),
)
""",
    "shared/__init__.py": """\
from snippets.one.experiments import layer
from .parts import part

__all__ = ["borrow"]


def borrow(size):
    return layer("cpu", size), part


def kept(size):
    return size
""",
    "shared/parts.py": "part = 1\n",
}
EVERY = {"one/layer", "one/other", "one/named", "one/tuned", "two/borrowed"}


def write(folder: Path, book: dict[str, str]) -> Path:
    """The chapters of a book below `snippets`, in a folder."""
    for name, text in book.items():
        path = folder / "snippets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder / "snippets"


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Experiment]:
    """The experiments of `BOOK`. Their functions are found by name, in whatever book is asked for."""
    sources = write(tmp_path_factory.mktemp("book"), BOOK)
    snippets = sys.modules["snippets"]
    paths = list(snippets.__path__)
    snippets.__path__[:] = [str(sources), *paths]
    try:
        modules = [importlib.import_module(f"snippets.{name}.experiments") for name in ("one", "two")]
    finally:
        snippets.__path__[:] = paths
        for name in ("one", "two", "shared"):
            delattr(snippets, name)
            for inside in [each for each in sys.modules if f"{each}.".startswith(f"snippets.{name}.")]:
                del sys.modules[inside]
    return {experiment.id: experiment for each in modules for experiment in each.EXPERIMENTS}


def fingerprints(sources: Path, listed: dict[str, Experiment]) -> dict[str, str]:
    code = MeasuredCode(Code(sources))
    return {name: code.fingerprint(experiment) for name, experiment in listed.items()}


def swap(name: str, old: str, new: str) -> Planted:
    """Replace the one place where a file says `old`."""

    def plant(book: dict[str, str]) -> None:
        assert book[name].count(old) == 1, old
        book[name] = book[name].replace(old, new)

    return plant


def move_file(book: dict[str, str]) -> None:
    book["one/kernels_of_one.py"] = book.pop("one/kernels.py")
    swap("one/model.py", "from .kernels import", "from snippets.one.kernels_of_one import")(book)


def move_helper(book: dict[str, str]) -> None:
    text = "def helper(x: Tensor) -> Tensor:\n    return x\n"
    swap("one/experiments.py", text, "")(book)
    book["one/helpers.py"] = f"from __future__ import annotations\n{text}"
    swap("one/experiments.py", "import json\n", "import json\nfrom snippets.one.helpers import helper\n")(book)


def make_package(book: dict[str, str]) -> None:
    """`model.py` becomes a package that exports what was in it."""
    text = book.pop("one/model.py")
    book["one/model/layers.py"] = text.replace("from .kernels", "from ..kernels")
    book["one/model/__init__.py"] = "from .layers import Layer, Other\n"


def package_experiments(book: dict[str, str]) -> None:
    """`experiments.py` becomes a package, with the data beside its code."""
    book["one/experiments/__init__.py"] = book.pop("one/experiments.py")
    book["one/experiments/tuned.json"] = book.pop("one/tuned.json")


def part_registry(book: dict[str, str]) -> None:
    """`registry.py` becomes a package that exports all of its files; functions in it are found by a pattern."""
    head, wide, rest = book.pop("one/registry.py").partition("def make_wide")
    book["one/registry/first.py"] = head
    book["one/registry/second.py"] = wide + rest
    book["one/registry/__init__.py"] = "from .first import *\nfrom .second import *\n"


def reorder(book: dict[str, str]) -> None:
    head, first, second = book["one/kernels.py"].partition("@triton.jit\ndef kernel")
    begin, *_ = head.partition("@triton.jit\ndef callee")
    book["one/kernels.py"] = begin + first + second + head.removeprefix(begin)


HARMLESS: dict[str, Planted] = {
    "a comment": swap("one/model.py", "SCALE = 0.5", "SCALE = 0.5  # half"),
    "a docstring": swap("one/model.py", '"""Run it."""', '"""Run the layer."""'),
    "the file's docstring": swap("one/model.py", '"""A model."""', ""),
    "formatting": swap("one/model.py", "F.gelu(x) * SCALE", "(\n            F.gelu( x )*SCALE)"),
    "an unused function": swap("one/experiments.py", "def least", "def unused():\n    return 7\n\n\ndef least"),
    "an unused constant": swap("one/model.py", "UNUSED = 1", "UNUSED = 2"),
    "an unused kernel": swap(
        "one/kernels.py", "def unused_kernel(x):\n    return x", "def unused_kernel(x):\n    return -x"
    ),
    "a neighbor": swap("one/registry.py", "3 * size", "4 * size"),
    "another experiment": swap(
        "one/experiments.py", "EXPERIMENTS = (", 'EXPERIMENTS = (\n    _experiment("more", other, size=2),'
    ),
    "an import that is not used": swap("one/experiments.py", "import json\n", "import json\nimport math\n"),
    "an import in another form": swap(
        "one/model.py", "from torch.nn import functional as F", "import torch.nn.functional as F"
    ),
    "another name for an import": swap(
        "one/experiments.py",
        "from snippets.one.model import Layer\n\n    return Subject(step=helper(Layer())",
        "from snippets.one.model import Layer as Block\n\n    return Subject(step=helper(Block())",
    ),
    "a name for type checkers": swap(
        "one/experiments.py", "    from torch import Tensor\n", "    from torch import Tensor, nn\n"
    ),
    "the order of definitions": reorder,
    "a file with another name": move_file,
    "a helper in another file": move_helper,
    "a package in place of a file": make_package,
    "a package of experiments": package_experiments,
    "a package whose names are found by a pattern": part_registry,
    "a program in a file": swap(
        "one/model.py", "UNUSED = 1", 'UNUSED = 1\nif __name__ == "__main__":\n    print(SCALE)'
    ),
    "a list that nothing reads": swap("one/experiments.py", 'NAMES.append("one")', 'NAMES.append("two")'),
    "a time limit": swap("one/experiments.py", "label=", "time_limit_s=300, label="),
    "other data": lambda book: book.update({"one/notes.json": "{}"}),
}
"""What makes nothing stale."""

REACHED: dict[str, tuple[Planted, set[str]]] = {
    "a line of forward": (swap("one/model.py", "F.gelu(x) *", "F.relu(x) *"), {"one/layer", "two/borrowed"}),
    "a constant": (swap("one/model.py", "SCALE = 0.5", "SCALE = 0.25"), {"one/layer", "two/borrowed"}),
    "a default argument": (swap("one/model.py", "slope=0.1", "slope=0.2"), {"one/layer", "two/borrowed"}),
    "a class attribute": (swap("one/model.py", "width = 4", "width = 8"), {"one/layer", "two/borrowed"}),
    "a class attribute from outside": (
        swap("one/model.py", "class Other", "Layer.width = 8\n\n\nclass Other"),
        {"one/layer", "two/borrowed"},
    ),
    "a decorator": (swap("one/model.py", "@tagged\n", ""), {"one/layer", "two/borrowed"}),
    "a decorator's body": (swap("one/model.py", "return cls", "return cls or None"), {"one/layer", "two/borrowed"}),
    "the module of a function": (
        swap("one/model.py", "from torch.nn import functional as F", "from torch.special import functional as F"),
        {"one/layer", "two/borrowed"},
    ),
    "a kernel's callee": (swap("one/kernels.py", "return x + 1", "return x + 2"), {"one/layer", "two/borrowed"}),
    "a kernel's default": (swap("one/kernels.py", "= 64", "= 128"), {"one/layer", "two/borrowed"}),
    "a kernel's decorator": (
        swap("one/kernels.py", "@triton.jit\ndef callee", "@triton.jit(noinline=True)\ndef callee"),
        {"one/layer", "two/borrowed"},
    ),
    "a helper": (
        swap("one/experiments.py", "-> Tensor:\n    return x", "-> Tensor:\n    return -x"),
        {"one/layer", "two/borrowed"},
    ),
    "a table filled by a loop": (swap("one/experiments.py", "ROW * 2", "ROW * 3"), {"one/layer", "two/borrowed"}),
    "a table's update": (
        swap("one/experiments.py", "def least", "TABLE.update({3: 4})\n\n\ndef least"),
        {"one/layer", "two/borrowed"},
    ),
    "an attribute of a module": (
        swap("one/model.py", "def forward(self, x):", "def forward(self, x, y=1):"),
        {"one/other"},
    ),
    "a name by its beginning": (swap("one/registry.py", "return 2 * size", "return 4 * size"), {"one/named"}),
    "the work": (swap("one/experiments.py", "Work(bytes=size)", "Work(bytes=2 * size)"), EVERY - {"two/borrowed"}),
    "data": (swap("one/tuned.json", "64", "128"), {"one/tuned"}),
    "a name of __all__": (swap("shared/__init__.py", '"cpu"', '"cuda"'), {"two/borrowed"}),
    "a name behind a package": (swap("shared/parts.py", "part = 1", "part = 2"), {"two/borrowed"}),
    "what registers itself": (
        swap("one/registry.py", "def neighbor", "@register\ndef neighbor"),
        {"one/layer", "one/other", "one/named", "one/tuned", "two/borrowed"},
    ),
    "a call when its file is imported": (
        swap("one/kernels.py", "@triton.jit\ndef callee", "tl.set_up()\n\n\n@triton.jit\ndef callee"),
        {"one/layer", "one/other", "two/borrowed"},
    ),
    "globals": (swap("one/registry.py", "return size", 'return globals()["neigh" + "bor"](size)'), {"one/named"}),
    "a module as a value": (swap("one/experiments.py", "step=m.Other()", "step=vars(m)"), {"one/other"}),
}
"""What makes some stale: the change, and the experiments that it reaches."""


@pytest.mark.parametrize("name", HARMLESS)
def test_what_makes_nothing_stale(tmp_path: Path, listed: dict[str, Experiment], name: str) -> None:
    before = fingerprints(write(tmp_path / "before", BOOK), listed)
    book = dict(BOOK)
    HARMLESS[name](book)
    assert book != BOOK
    assert fingerprints(write(tmp_path / "after", book), listed) == before


@pytest.mark.parametrize("name", REACHED)
def test_what_makes_some_stale(tmp_path: Path, listed: dict[str, Experiment], name: str) -> None:
    before = fingerprints(write(tmp_path / "before", BOOK), listed)
    book = dict(BOOK)
    plant, stale = REACHED[name]
    plant(book)
    after = fingerprints(write(tmp_path / "after", book), listed)
    assert {name for name in before if after[name] != before[name]} == stale


def test_what_globals_reach_counts(tmp_path: Path, listed: dict[str, Experiment]) -> None:
    book = dict(BOOK)
    swap("one/registry.py", "return size", 'return globals()["neigh" + "bor"](size)')(book)
    before = fingerprints(write(tmp_path / "before", book), listed)
    swap("one/registry.py", "3 * size", "4 * size")(book)
    after = fingerprints(write(tmp_path / "after", book), listed)
    assert {name for name in before if after[name] != before[name]} == {"one/named"}


@pytest.mark.parametrize(
    ("statement", "changed", "is_seen"),
    [
        ("import importlib\nx = importlib.import_module('snippets.one.registry')", "registry", True),
        ("import importlib\nx = importlib.import_module(f'snippets.{chapter}.registry')", "registry", True),
        ("import importlib\nx = importlib.import_module(name)", "registry", True),
        ("PROGRAM = 'from snippets.one.registry import neighbor'", "registry", True),
        ("import snippets.one.registry\nx = snippets.one.registry.neighbor", "registry", True),
        ("import snippets.one.registry\nx = snippets.one.registry.make_plain", "registry", False),
        ("from snippets.one import registry\nx = registry.make_plain", "registry", False),
        ("from snippets.one import registry\nx = eval('registry.neighbor')", "registry", False),
        ("from snippets.one import registry\nf(registry)", "registry", True),
        ("from snippets.one import registry\nx = lambda registry: registry.neighbor", "registry", False),
    ],
)
def test_a_program_reaches_what_it_names(tmp_path: Path, statement: str, changed: str, is_seen: bool) -> None:
    book = dict(BOOK)
    before = text_fingerprint(statement, "", write(tmp_path / "before", book))
    swap(f"one/{changed}.py", "3 * size", "4 * size")(book)
    assert (text_fingerprint(statement, "", write(tmp_path / "after", book)) != before) is is_seen


def test_programs_do_not_change_each_other(tmp_path: Path) -> None:
    book = {f"{name}/one.py": f"atexit.register(print, '{name}')\nvalue = 2\n" for name in "ab"}
    first, second = (f"from snippets.{name}.one import value\nuse(value)" for name in "ab")
    sources = write(tmp_path / "both", book)
    text_fingerprint(first, "", sources)
    assert text_fingerprint(second, "", sources) == text_fingerprint(second, "", write(tmp_path / "alone", book))


def test_a_base_that_hears_of_its_subclasses(tmp_path: Path) -> None:
    book = {"a/base.py": "class Base:\n    def __init_subclass__(cls):\n        pass\n\n\nclass Quiet:\n    pass\n"}
    texts = [
        f"from .base import Base, Quiet\n\n\nclass One({base}):\n    x = {x}\n\n\nused = 1\n"
        for base in ("Base", "Quiet")
        for x in (1, 2)
    ]
    found = [
        text_fingerprint(
            "from snippets.a.parts import used\nuse(used)",
            "",
            write(tmp_path / str(number), book | {"a/parts.py": text}),
        )
        for number, text in enumerate(texts)
    ]
    assert found[0] != found[1], "the subclass may be in a list by now"
    assert found[2] == found[3]


def test_definitions_that_reach_each_other(tmp_path: Path) -> None:
    circle = "def f(n):\n    return g(n)\n\n\ndef g(n):\n    return f(n - 1) if n else {}\n"
    program = "from snippets.a.circle import f\nuse(f)"
    found = {text_fingerprint(program, "", write(tmp_path / end, {"a/circle.py": circle.format(end)})) for end in "12"}
    assert len(found) == 2
    imports = {"a/one.py": "from snippets.a.two import Y\nX = 1\n", "a/two.py": "from snippets.a.one import X\nY = X\n"}
    assert text_fingerprint("from snippets.a.one import X, Y\nuse(X, Y)", "", write(tmp_path / "3", imports))


FIELDS = {
    "parameters": {"size": 2},
    "label": "forward",
    "group": "both",
    "first_steps": 0,
    "timed": False,
    "sweep": ({"size": 2},),
    "steady_sweep": True,
    "environment": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
}


def test_what_an_experiment_is_counts(listed: dict[str, Experiment], tmp_path: Path) -> None:
    sources = write(tmp_path, BOOK)
    experiment = listed["one/named"]
    changed = [replace(experiment, **{name: value}) for name, value in FIELDS.items()]
    changed.append(replace(experiment, make=functools.partial(experiment.make.func, kind="wide")))  # type: ignore[union-attr]
    found = [fingerprint(each, sources) for each in (experiment, *changed)]
    assert len({*found}) == len(found)
    assert {len(each) for each in found} == {16}
    same = replace(experiment, chapter="three", name="renamed", time_limit_s=9)
    assert fingerprint(same, sources) == found[0]


def test_the_number_of_gpus_counts(listed: dict[str, Experiment], tmp_path: Path) -> None:
    sources = write(tmp_path, BOOK)
    experiment = listed["one/named"]
    on_two, on_four = (replace(experiment, make=None, work=None, probe=_on_ranks, gpus=gpus) for gpus in (2, 4))
    assert fingerprint(on_two, sources) != fingerprint(on_four, sources)


def _on_ranks(**_: object) -> dict[str, object]:
    raise NotImplementedError


def test_the_protocol_counts(listed: dict[str, Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = write(tmp_path, BOOK)
    before = fingerprint(listed["one/layer"], sources)
    monkeypatch.setattr(module, "PROTOCOL", PROTOCOL + 1)
    module._measured_code.cache_clear()
    assert fingerprint(listed["one/layer"], sources) != before


def test_a_file_that_is_saved_counts_at_once(listed: dict[str, Experiment], tmp_path: Path) -> None:
    sources = write(tmp_path, BOOK)
    before = fingerprint(listed["one/layer"], sources)
    assert fingerprint(listed["one/layer"], sources) == before
    (sources / "one" / "kernels.py").write_text(BOOK["one/kernels.py"].replace("x + 1", "x + 22"), "utf-8")
    assert fingerprint(listed["one/layer"], sources) != before


EVERY_EXPERIMENT = [experiment for chapter in chapters() for experiment in experiments(chapter)]


def stale_after(path: str, old: str, new: str) -> set[str]:
    """The book's experiments that a change of one of its files makes stale."""
    file = SOURCES / path
    text = file.read_text("utf-8")
    assert text.count(old) == 1, old
    code = Code(SOURCES)
    code.add(file, text.replace(old, new))
    changed, current = MeasuredCode(code), module.measured_code()
    return {each.id for each in EVERY_EXPERIMENT if changed.fingerprint(each) != current.fingerprint(each)}


@pytest.mark.slow
def test_a_line_of_geglu_makes_stale_what_runs_it() -> None:
    """In every chapter. The regimes time it alone, in a stack, and in one program with the modes of compilation."""
    stale = stale_after("mlp/model.py", "return self.down_proj(", "return 1 * self.down_proj(")
    by_chapter = {chapter: {each.name for each in experiments(chapter)} for chapter in chapters()}
    runs = {
        "index": {"one_token"},
        "mlp": by_chapter["mlp"] - {"after_idle"},
        "fused_mlp": {
            name
            for name in by_chapter["fused_mlp"]
            if not name.startswith(("pointwise_", "linear_", "gate_up_", "quack"))
            and name
            not in {*("chosen", "resources", "steps", "launches", "architectures", "ampere_code", "activation_errors")}
        },
        "regimes": {
            *("growth_geglu", "growth_launches", "modes_stack", "modes_geglu", "new_shapes", "biases"),
            *(name for name in by_chapter["regimes"] if name.startswith("bias_")),
        },
    }
    assert stale == {f"{chapter}/{name}" for chapter, names in runs.items() for name in names}


@pytest.mark.slow
def test_an_addition_makes_nothing_stale() -> None:
    code = Code(SOURCES)
    for path in (
        "mlp/experiments/forwards.py",
        "mlp/model.py",
        "attention/experiments/steps.py",
        "fused_mlp/geglu/hopper.py",
    ):
        code.add(
            SOURCES / path,
            f"{(SOURCES / path).read_text('utf-8')}\n\nUNUSED = 1\n\n\ndef unused():\n    return UNUSED\n",
        )
    added, current = MeasuredCode(code), module.measured_code()
    stale = {each.id for each in EVERY_EXPERIMENT if added.fingerprint(each) != current.fingerprint(each)}
    assert stale <= {"fused_mlp/resources", "fused_mlp/chosen"}, "these look names up in a module of kernels"


@pytest.mark.slow
def test_the_shipped_choices_make_stale_what_they_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """They say which kernel of ours runs on a GPU, so what runs none does not depend on them, nor do other GPUs."""
    code = Code(SOURCES)
    before = {gpu: every_fingerprint(MeasuredCode(code, gpu)) for gpu in ("NVIDIA H200", "NVIDIA H100 80GB HBM3")}
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: with_another_choice(read(path), path.name))
    after = {gpu: every_fingerprint(MeasuredCode(code, gpu)) for gpu in before}
    assert after["NVIDIA H200"] == before["NVIDIA H200"]
    changed, unchanged = after["NVIDIA H100 80GB HBM3"], before["NVIDIA H100 80GB HBM3"]
    stale = {name for name in changed if changed[name] != unchanged[name]}
    assert {"fused_mlp/fused", "fused_mlp/kernelized", "fused_mlp/bfloat16_fused"} <= stale
    assert {name.partition("/")[0] for name in stale} <= {"decode_kernels", "decoder", "fact_check", "fused_mlp"}


@pytest.mark.parametrize("broken", [b"{", b"[]"])
def test_a_broken_table_of_choices_counts_as_a_whole(monkeypatch: pytest.MonkeyPatch, broken: bytes) -> None:
    (experiment,) = find("fused_mlp/fused")
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: broken if path.name == module.CHOICES else read(path))
    found = {MeasuredCode(Code(SOURCES), gpu).fingerprint(experiment) for gpu in ("", "NVIDIA H200")}
    assert len(found) == 1


def every_fingerprint(code: MeasuredCode) -> dict[str, str]:
    return {each.id: code.fingerprint(each) for each in EVERY_EXPERIMENT}


def with_another_choice(content: bytes, name: str) -> bytes:
    """The table of choices, with another choice for one GPU; any other file as it is."""
    if name != module.CHOICES:
        return content
    choices = json.loads(content)
    choices["NVIDIA H100 80GB HBM3"]["gate_up gelu_tanh 1x1x1 bfloat16"] = "two products"
    return json.dumps(choices).encode()


def other_pythons() -> list[str]:
    """Other interpreters of 3.11 or newer on this machine, one of each version."""
    places = [Path(path) for minor in range(11, 17) if (path := shutil.which(f"python3.{minor}"))]
    places += sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"))
    by_version: dict[str, str] = {}
    for place in places:
        command = [place, "-c", "import sys; print(*sys.version_info[:2], sep='.')"]
        reply = subprocess.run(command, capture_output=True, text=True, check=False)
        version = reply.stdout.strip()
        if reply.returncode == 0 and (3, 11) <= tuple(map(int, version.split("."))) != sys.version_info[:2]:
            by_version[version] = str(place)
    return list(by_version.values())


@pytest.mark.slow
def test_a_fingerprint_is_the_same_under_every_python() -> None:
    """Nothing below needs a package: experiments import none, nor does what computes their fingerprints."""
    pythons = other_pythons()
    if not pythons:
        pytest.skip("no other Python of 3.11 or newer on this machine")
    program = (
        "from snippets.lab.experiment import find\nfrom snippets.lab.recording.fingerprint import fingerprint\n"
        "print(*(fingerprint(each) for name in ('mlp', 'fused_mlp') for each in find(name)))\n"
    )
    expected = [fingerprint(each) for name in ("mlp", "fused_mlp") for each in find(name)]
    for python in pythons:
        done = subprocess.run([python, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)
        assert done.stdout.split() == expected, python


def test_a_recording_is_stale_when_its_fingerprint_differs() -> None:
    (experiment,) = find("mlp/eager")
    assert not is_stale(sample("mlp/eager"), experiment)
    assert is_stale(sample("mlp/eager", fingerprint="0" * 16), experiment)
