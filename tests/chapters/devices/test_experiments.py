"""The ceilings' subjects on a CPU, at small and odd sizes."""

import torch

from snippets.devices import experiments


def test_a_copy_returns_its_input_and_counts_bytes_twice():
    subject = experiments.copy("cpu", mebibytes=1)
    (source,) = subject.inputs()
    assert torch.equal(subject.step(source), source)
    assert not subject.in_graph
    assert experiments.copy_in_graph("cpu", mebibytes=1).in_graph
    assert experiments.copy_work(1).bytes == 2 * 1024 * 1024
    assert experiments.copy_work(1).flops == 0


def test_a_product_agrees_with_its_reference_at_odd_shapes():
    torch.manual_seed(0)
    subject = experiments.matmul("cpu", 7, 33, 5)
    (x,) = subject.inputs()
    product, expected = subject.step(x), subject.reference(x)
    assert product.shape == (7, 5)
    assert ((product.double() - expected).norm() / expected.norm()) < 5e-3


def test_the_work_of_a_product():
    work = experiments.matmul_work(2, 3, 5)
    assert (work.flops, work.bytes) == (60, 2 * (6 + 15 + 10))
