"""Which GPU work communicates, and the identity of a collective."""

from __future__ import annotations

from typing import Any

import pytest

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.ranks.digest import digest
from kinetoscope.trace.communication import (
    collective_kind,
    communicates,
    communication,
    computing_times,
    exposed_collectives_us,
    exposed_communication_us,
    is_collective,
    kind_of,
)
from kinetoscope.trace.events import Collective, GpuActivity, Step
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.totals import summarize
from tests.tool.events import annotation, kernel, launch, memcpy, op, step, trace_bytes

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
STATED = {
    "Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 9, "dtype": "Float", "Group size": 2,
    "Process Group Name": "5", "Process Group Description": "tp", "Process Group Ranks": "[2, 5]", "Seq": 7,
}  # fmt: skip


def only_step(*given: Any, **top: Any) -> Step:
    (only,) = read_trace(trace_bytes(*given, **top)).steps
    return only


def only_kernel(*given: Any) -> GpuActivity:
    (only,) = only_step(step(2, 0, 100), *given).kernels
    return only


def params(start: float, duration: float, **args: Any) -> Any:
    event = op("record_param_comms", start, duration)
    return event | {"args": event["args"] | args}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", True), ("rcclGenericKernel", True),
        ("void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>", True), ("reduce_kernel<512, 1>", False),
        ("all_reduce_is_mentioned", False), ("void (anonymous namespace)::oneShotAllReduceKernel<float, 8>", True),
        ("void quickreduce::allreduce_prototype_twoshot<__half>", True), ("EpDispatchIntraNodeKernel_bf16", True),
        ("void flashinfer::trtllm_mnnvl_allreduce::twoshotAllreduceKernel<(unsigned char)8>", True),
        ("void tensorrt_llm::kernels::moe_comm::moeA2APrepareDispatchKernel(int)", True),
        ("void deep_ep::internode_ll::dispatch<true>", True), ("userbuffers_fp16_sum_inplace_gpu_rr", True),
        ("c10d::symmetric_memory::barrier_kernel(unsigned int**)", True), ("one_shot_all_reduce_kernel", True),
        ("nvshmemi_transfer_put_signal", True), ("void oneccl_allreduce_large<float>", True),
        ("hcom_allReduce__123_0", True), ("uccl::ep::dispatch", True),
        ("aiter::reduce_scatter_cross_device_store", True),
        ("triton_poi_fused_all_reduce_kernel_0", False), ("void warpAllReduceKernel<float>", False),
        ("void gemm<AllReduceKernel>", False), ("SmallReduceKernel", False), ("vectorized_gather_kernel<16>", False),
        ("void at::native::(anonymous namespace)::scatter_kernel<1>", False), ("deepEpsilonKernel", False),
    ],
)  # fmt: skip
def test_names_of_kernels_that_communicate(name: str, expected: bool) -> None:
    assert communicates(name) is expected


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_allgather_base", "allgather"), ("nccl:_reduce_scatter_base", "reducescatter"),
        ("nccl:all_to_all", "alltoall"),
        ("ncclDevKernel_AllReduce_Sum_f16_RING_LL", "allreduce"), ("broadcast_oop", "broadcast"), ("wait", ""),
        ("allgather_into_tensor_coalesced", "allgather"), ("nccl:recv 1<-0", "recv"), ("nccl:coalesced", ""),
        (SEND_RECV, ""), ("ncclDevKernel_Generic", ""), ("ncclDevKernel_Reduce_Sum_f32", "reduce"),
    ],
)  # fmt: skip
def test_kinds(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_arguments_of_the_kernel_come_first() -> None:
    found = only_kernel(annotation("nccl:broadcast", 1, 9), launch(1, 2), kernel("odd", 1, 20, 1, **STATED))
    assert is_collective(found)
    assert found.collective == Collective("allreduce", 8, 9, "Float", 2, "5", (2, 5), 7)
    assert collective_kind(found) == "allreduce"


@pytest.mark.parametrize("name", [ALL_REDUCE, "an_unknown_kernel"])
def test_then_the_operator_above_the_launch(name: str) -> None:
    """As in traces of torch 2.11, whose kernels have neither an external id nor arguments."""
    above = op("c10d::allreduce_", 1, 9), params(2, 7, **STATED), annotation("nccl:_all_gather_base", 3, 5)
    found = only_kernel(*above, launch(1, 4), kernel(name, 1, 20, 1))
    assert found.collective == Collective("allreduce", 8, 9, "Float", 2, "5", (2, 5), 7)


def test_a_copy_inside_a_collective_communicates_nothing() -> None:
    above = params(2, 17, **STATED), annotation("nccl:all_reduce", 3, 15), op("aten::copy_", 4, 5)
    found = only_kernel(*above, launch(1, 5), kernel("elementwise_kernel", 1, 30, 1))
    assert not is_collective(found)


@pytest.mark.parametrize(
    ("label", "name", "kind", "peer"),
    [
        ("nccl:all_to_all", SEND_RECV, "alltoall", None), ("nccl:broadcast", ALL_REDUCE, "broadcast", None),
        ("nccl:send 1->2", SEND_RECV, "send", 2), ("nccl:recv 1<-0", SEND_RECV, "recv", 0),
        ("c10d::_allgather_base_", "ncclDevKernel_Generic", "allgather", None),
        ("xccl:reduce_scatter", "an_unknown_kernel", "reducescatter", None),
        ("nccl:coalesced", ALL_REDUCE, "allreduce", None), ("my_phase", SEND_RECV, "", None),
        ("my_phase", ALL_REDUCE, "allreduce", None),
    ],
)  # fmt: skip
def test_then_the_annotation_and_last_the_name(label: str, name: str, kind: str, peer: int | None) -> None:
    found = only_kernel(annotation(label, 1, 9), launch(1, 4), kernel(name, 1, 20, 1))
    assert is_collective(found)
    assert collective_kind(found) == kind
    assert (found.collective.peer if found.collective else None) == peer


def test_a_coalesced_collective_is_known_by_its_kernel() -> None:
    above = params(1, 9, **{**STATED, "Collective name": "coalesced"}), annotation("nccl:coalesced", 2, 7)
    found = only_kernel(*above, launch(1, 4), kernel(ALL_REDUCE, 1, 20, 1))
    assert found.collective is not None
    assert (collective_kind(found), found.collective.ranks) == ("allreduce", (2, 5))


@pytest.mark.parametrize(
    ("args", "ranks"),
    [
        ({"Process Group Ranks": "[0, 8, ..., 504]", "Global rank start": 0, "Global rank stride": 8, "Group size": 64},
         tuple(range(0, 512, 8))),
        ({"Process Group Ranks": "[0, 8, ..., 504]", "Group size": 64}, ()),
        ({"Process Group Ranks": "", "Global rank start": 4, "Global rank stride": 1, "Group size": 2}, (4, 5)),
        ({"Process Group Ranks": "[]", "Group size": 1}, ()),
    ],
)  # fmt: skip
def test_members_of_a_group(args: dict[str, Any], ranks: tuple[int, ...]) -> None:
    found = only_kernel(launch(1, 4), kernel(ALL_REDUCE, 1, 20, 1, **{"Collective name": "allreduce", **args}))
    assert found.collective is not None
    assert found.collective.ranks == ranks


@pytest.mark.parametrize(
    ("args", "group"),
    [
        ({"Process Group Name": "ad56679d2c95f00a464e146ac76c2deb475d8262"}, "tp"),
        ({"Process Group Name": "ad56679d2c95f00a464e146ac76c2deb475d8262", "Process Group Ranks": ""},
         "ad56679d2c95f00a464e146ac76c2deb475d8262"),
        ({"Process Group Name": ""}, "tp"),
        ({"Process Group Name": "dp_replicate"}, "dp_replicate"),
    ],
)  # fmt: skip
def test_the_name_of_a_group(args: dict[str, Any], group: str) -> None:
    found = only_kernel(launch(1, 4), kernel(ALL_REDUCE, 1, 20, 1, **{**STATED, **args}))
    assert found.collective is not None
    assert found.collective.group == group


@pytest.mark.parametrize(
    ("of_calls", "info", "rank"),
    [
        ([{"Process Group Ranks": "[4, 6]", "Rank": 1}, {"Process Group Ranks": "[2, 6]", "Rank": 1}], None, 6),
        ([{"Process Group Ranks": "[4, 6]", "Rank": 1}, {"Process Group Ranks": "[4, 6]", "Rank": 0}], None, None),
        ([{"Process Group Ranks": "[4, 6]", "Rank": 1}], {"rank": 3}, 3),
        ([{"Process Group Ranks": "[4, 6]", "Rank": 1, "Collective name": "send"}], None, None),
        ([{"Process Group Ranks": "[4, 6]"}], None, None),
    ],
    ids=["told by its groups", "told differently", "told at the head", "the rank of the other side", "not told"],
)
def test_the_rank_where_the_head_of_the_file_lacks_it(
    of_calls: list[dict[str, Any]], info: Any, rank: int | None
) -> None:
    """As in a profile that began before `init_process_group`."""
    calls = [params(10.0 * number, 5, **{**STATED, **args}) for number, args in enumerate(of_calls)]
    assert read_trace(trace_bytes(*calls, distributedInfo=info)).rank == rank


@pytest.mark.parametrize(("name", "key"), [("send", "Dst Rank"), ("recv", "Src Rank")])
def test_the_peer_of_a_send_is_a_rank_of_the_job(name: str, key: str) -> None:
    args = {**STATED, "Collective name": name, key: 1}
    found = only_kernel(params(1, 9, **args), launch(1, 4), kernel(SEND_RECV, 1, 20, 1))
    assert found.collective is not None
    assert found.collective.peer == 5


def test_copies_between_gpus_communicate_and_hide_nothing() -> None:
    """A copy from 10 to 20, a collective from 15 to 30, a kernel from 28 to 40, an ordinary copy from 40 to 45."""
    peer = {**memcpy(1, 10, 10, 64), "name": "Memcpy PtoP (Device -> Device)"}
    found = only_step(
        step(2, 0, 100), *(launch(n, n) for n in range(1, 5)), peer, kernel(ALL_REDUCE, 2, 15, 15),
        kernel("gemm", 3, 28, 12), memcpy(4, 40, 5, 64),
    )  # fmt: skip
    assert communication(found) == found.activities[:2]
    assert exposed_collectives_us(found) == 13.0
    assert exposed_communication_us(found) == 18.0


def test_a_kernel_of_another_step_hides_a_collective() -> None:
    """The CPU runs ahead: the first step's kernel runs from 10 to 60, the second step's all-reduce from 30 to 80."""
    trace = read_trace(
        trace_bytes(
            step(1, 0, 9), launch(1, 2), kernel("gemm", 1, 10, 50),
            step(2, 10, 9), launch(2, 12), kernel(ALL_REDUCE, 2, 30, 50, stream=20),
            launch(3, 15), kernel("gemm", 3, 80, 10), distributedInfo={"rank": 0, "world_size": 2},
        )
    )  # fmt: skip
    second = trace.steps[1]
    computing = computing_times(trace.activities)
    assert computing == {0: [(10_000, 60_000), (80_000, 90_000)]}
    assert (exposed_collectives_us(second), exposed_collectives_us(second, computing)) == (50.0, 20.0)
    assert exposed_communication_us(second, computing) == 20.0
    assert summarize(trace).exposed_collectives_us_per_step == 10.0
    (rank,) = digest(trace).ranks
    assert [each.exposed_ns for each in rank.steps] == [0, 20_000]
    (found,) = [each for each in diagnose(trace).findings if each.rule.name == "exposed-communication"]
    assert found.saving_us_per_step == 10.0
