"""Wrong captures: counts, costs and sizes."""

import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from kinetoscope.html import Cell, Html, code, table
from snippets.lab.finding import Device, Figure, at_least, at_most, between, claim, equals, format_value
from snippets.lab.page import figure_cell, show as show, timeline

OPTIONS = {
    "nothing": "the defaults",
    "record_shapes": "record_shapes=True",
    "profile_memory": "profile_memory=True",
    "with_modules": "with_modules=True",
    "with_flops": "with_flops=True",
    "with_stack": "with_stack=True",
    "all": "shapes, memory, FLOPs and stack",
}
"""Option of the probe -> how a reader writes it."""
COUNTED = {"operators": "operators", "launches": "launch calls", "gpu": "GPU events"}
"""Count of a capture -> its column."""


def quartiles(values: Sequence[float], unit: str, origin: str) -> Figure:
    """The median with its quartiles."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Figure(middle, unit, (low, high), origin)


def overhead(device: Device) -> Mapping[str, Any]:
    """The data of the probe: samples by option, before any profile, and bytes by step."""
    return device["capture_faults/overhead"].data


def absent_here_alone(device: Device, experiment: str, capture: str, control: str) -> Figure:
    """Whether a capture has operators and no GPU event, while its control has both."""
    data = device[f"capture_faults/{experiment}"].data
    lacks, has = data[capture], data[control]
    holds = lacks["gpu"] == 0 < lacks["operators"] and has["gpu"] > 0 and has["operators"] > 0
    display = f"{lacks['gpu']} of {has['gpu']} GPU events"
    return Figure(holds, origin=f"capture_faults/{experiment}, {capture} and {control}", display=display)


def step_time(device: Device, option: str) -> Figure:
    """Time of a step under an option, `without` a profiler between profiles, or `before` any."""
    data = overhead(device)
    samples = data["before_us"] if option == "before" else data["samples_us"][option]
    return quartiles(samples, "us", f"capture_faults/overhead, {option}")


def slowdown(device: Device, option: str, other: str = "without") -> Figure:
    """The time of a step with an option / its time with another option, sample by sample."""
    samples = {**overhead(device)["samples_us"], "before": overhead(device)["before_us"]}
    ratios = [upper / lower for upper, lower in zip(samples[option], samples[other], strict=True)]
    return quartiles(ratios, "x", f"capture_faults/overhead, {option} over {other}")


def step_bytes(device: Device, option: str) -> Figure:
    """Bytes of the exported file for each step."""
    return Figure(overhead(device)["bytes_per_step"][option], "bytes", origin=f"capture_faults/overhead, {option}")


def counted(device: Device, experiment: str, capture: str, of: str) -> Figure:
    """How many events of a kind a capture has."""
    return Figure(
        device[f"capture_faults/{experiment}"].data[capture][of], origin=f"capture_faults/{experiment}, {capture}"
    )


@claim("C1", at_least(1.1), scope="timing")
def defaults_cost(device: Device) -> Figure:
    """With its default options, the profiler makes a step of short operators take at least 10 % longer."""
    return slowdown(device, "nothing")


@claim("C2", at_least(1.25), scope="timing")
def everything_costs(device: Device) -> Figure:
    """With the options for shapes, memory, FLOPs and stacks, the profiler makes a step of short operators take at least
    25 % longer."""
    return slowdown(device, "all")


@claim("C3", at_least(1.05), scope="timing")
def stays_slower(device: Device) -> Figure:
    """With the profiler off, a step takes at least 5 % longer after the first profile of its process than before this
    profile."""
    return slowdown(device, "without", "before")


@claim("C4", at_least(1.3), scope="every-gpu")
def bytes_of_everything(device: Device) -> Figure:
    """With the options for shapes, memory, FLOPs and stacks, a trace has at least 30 % more bytes per step than with
    the default options."""
    every, defaults = (step_bytes(device, option).number for option in ("all", "nothing"))
    return Figure(every / defaults, "x", origin="capture_faults/overhead, bytes per step, all over nothing")


@claim("C5", equals(0))
def forgotten_step(device: Device) -> Figure:
    """With a schedule and without `prof.step()`, the profiler keeps no operator at all."""
    return counted(device, "forgotten_step", "forgotten", "operators")


@claim("C6", equals(True))
def cpu_only(device: Device) -> Figure:
    """A profile of the CPU's activities alone has no kernel, copy or fill, although the GPU runs them."""
    return absent_here_alone(device, "cpu_only", "cpu_only", "everything")


@claim("C7", equals(0))
def other_thread(device: Device) -> Figure:
    """A profile has no operator of a thread that started after the profiler."""
    return counted(device, "in_a_thread", "thread", "operators")


@claim("C8", equals(True))
def kernels_of_other_thread(device: Device) -> Figure:
    """A profile has all kernels, copies and fills of a thread that started after the profiler."""
    thread, here = (counted(device, "in_a_thread", capture, "gpu") for capture in ("thread", "here"))
    same = 0 < here.number == thread.number
    return Figure(same, origin=thread.origin, display=f"{thread.text} of {here.text} GPU events")


@claim("C9", equals(True))
def worker_processes(device: Device) -> Figure:
    """A profile has no operator of a `DataLoader` with worker processes, but has operators of a `DataLoader` without
    workers."""
    made = device["capture_faults/in_workers"].data["made"]
    (workers,) = (number for number in made if number != "0")
    display = f"{made[workers]} operators, {made['0']} without workers"
    return Figure(made[workers] == 0 < made["0"], origin="capture_faults/in_workers", display=display)


@claim("C10", equals(True))
def taken_cupti(device: Device) -> Figure:
    """A profile has operators but no GPU events if another tool in the process uses CUPTI, and has both without this
    tool."""
    return absent_here_alone(device, "second_subscriber", "taken", "alone")


def first_to_second(device: Device, name: str) -> Figure:
    """The first kept step / the second on the CPU, over all sessions."""
    sessions = device["capture_faults/unwarmed"].data[name]
    ratios = [session["first_us"] / session["second_us"] for session in sessions]
    return quartiles(ratios, "x", f"capture_faults/unwarmed, {name}")


@claim("C11", at_least(1.2), scope="timing")
def unwarmed_first(device: Device) -> Figure:
    """Without warm-up steps in the schedule, the first kept step takes the CPU at least 20 % longer than the second
    kept step."""
    return first_to_second(device, "unwarmed")


@claim("C12", between(0.85, 1.15), scope="timing")
def warmed_first(device: Device) -> Figure:
    """With two warm-up steps in the schedule, the CPU times of the first and the second kept step differ by at most 15
    %."""
    return first_to_second(device, "warmed")


@claim("C13", equals(0))
def dropped(device: Device) -> Figure:
    """In the first kept step of a session, every launch has its GPU event, with or without warm-up steps."""
    sessions = [session for listed in device["capture_faults/unwarmed"].data.values() for session in listed]
    launches = sum(session["launches"] for session in sessions)
    missing = sum(session["missing"] for session in sessions)
    display = f"{missing} of {launches:,} launches in {len(sessions)} sessions"
    return Figure(missing, origin="capture_faults/unwarmed", display=display)


@claim("C14", between(0.9, 1.1), scope="every-gpu")
def size_grows(device: Device) -> Figure:
    """If a trace has ten times as many steps, its file has ten times as many bytes, within 10 %."""
    (_, few, many) = device["capture_faults/huge"].data["traces"]
    ratio = many["bytes"] / many["steps"] / (few["bytes"] / few["steps"])
    return Figure(ratio, "x", origin="capture_faults/huge, bytes per step")


@claim("C15", at_most(0.05), scope="every-gpu")
def kernels_by_operator(device: Device) -> Figure:
    """In the trace of a replayed CUDA graph, at most 5 % of the kernels have an operator above their launch."""
    step = device["trace_rows/graph"].step
    share = sum(kernel.op is not None and not kernel.op.is_annotation for kernel in step.kernels) / len(step.kernels)
    return Figure(
        share, origin="trace_rows/graph", display=f"{round(share * len(step.kernels))} of {len(step.kernels)}"
    )


FIGURES = {
    "defaults_factor": lambda device: slowdown(device, "nothing"),
    "all_factor": lambda device: slowdown(device, "all", "nothing"),
    "hundred_steps_bytes": lambda device: Figure(
        device["capture_faults/huge"].data["traces"][-1]["bytes"], "bytes", origin="capture_faults/huge"
    ),
}


def cost_of_options(device: Device) -> Html:
    """Time and file size of a step under each option of the profiler."""
    rows: list[Sequence[Cell]] = [
        ["no profiler, before the first profile", figure_cell(step_time(device, "before")), None, None],
        ["no profiler, between profiles", figure_cell(step_time(device, "without")), None, None],
    ]
    for option, written in OPTIONS.items():
        heading = code(written) if "=" in written else written
        size = format_value(step_bytes(device, option).number, "bytes")
        rows.append([heading, figure_cell(step_time(device, option)), slowdown(device, option).text, size])
    head = ["options", "time of a step", "time / time without a profiler", "bytes of the trace per step"]
    return table("Time of a step of short operators, by option of the profiler", head, rows)


def what_is_there(device: Device, experiment: str, captures: Mapping[str, str], caption: str) -> Html:
    """The content of each capture of a probe, one row each; `captures` gives their headings."""
    data = device[f"capture_faults/{experiment}"].data
    rows: list[Sequence[Cell]] = [
        [heading, *(format_value(data[name].get(kind, 0), "") for kind in COUNTED)]
        for name, heading in captures.items()
    ]
    return table(caption, ["capture", *COUNTED.values()], rows)


def forgotten(device: Device) -> Html:
    """The steps that a schedule keeps without and with `prof.step()`."""
    captures = {"forgotten": "without prof.step()", "ended": "with prof.step()"}
    return what_is_there(
        device, "forgotten_step", captures, "Events of five steps, with a schedule that keeps three steps"
    )


def activities(device: Device) -> Html:
    """The events that the CPU's activities alone record."""
    captures = {"cpu_only": "activities=[CPU]", "everything": "all activities, the default"}
    return what_is_there(device, "cpu_only", captures, "Events of one step, by recorded activities")


def threads(device: Device) -> Html:
    """A step in a new thread and in the thread that profiles."""
    captures = {"thread": "step in a new thread", "here": "step in the thread that profiles"}
    return what_is_there(device, "in_a_thread", captures, "Events of one step, by thread")


def subscribers(device: Device) -> Html:
    """Four products with CUPTI free and taken, and the output of the process."""
    data = device["capture_faults/second_subscriber"].data
    rows: list[Sequence[Cell]] = [
        [heading, data[name]["said"][0] if data[name]["said"] else None, data[name]["operators"], data[name]["gpu"]]
        for name, heading in {"alone": "CUPTI is free", "taken": "another tool uses CUPTI"}.items()
    ]
    return table(
        "Events of four matrix products",
        ["capture", "on the error stream", "operators", "GPU events"],
        rows,
        text_columns=2,
    )


def first_steps(device: Device) -> Html:
    """The first two kept steps without and with warm-up steps, medians over sessions."""
    data = device["capture_faults/unwarmed"].data
    rows: list[Sequence[Cell]] = []
    for name, heading in {"unwarmed": "warmup=0", "warmed": "warmup=2"}.items():
        times = [quartiles([each[key] for each in data[name]], "us", "") for key in ("first_us", "second_us")]
        rows.append([code(heading), *map(figure_cell, times), first_to_second(device, name).text])
    return table("CPU times of two kept steps", ["schedule", "first step", "second step", "first / second step"], rows)


def sizes(device: Device) -> Html:
    """How a trace with stacks and shapes grows."""
    rows: list[Sequence[Cell]] = [
        [
            f"{each['steps']:,}",
            f"{each['events']:,}",
            format_value(each["bytes"], "bytes"),
            format_value(1e3 * each["export_ms"], "us"),
        ]
        for each in device["capture_faults/huge"].data["traces"]
    ]
    return table("Size of a trace with shapes and stacks", ["steps", "events", "file size", "time to export"], rows)


replayed = partial(
    timeline,
    variants={"replayed": "trace_rows/graph"},
    caption="A replayed CUDA graph: one call, and the kernels of a forward",
)
