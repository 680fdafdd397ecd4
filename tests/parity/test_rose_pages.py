"""Memory that moves into huge pages keeps what it holds; what no system would move is left alone."""

import mmap

import torch
from torch import nn

from rosebed.rose.ops import onednn, reference
from rosebed.rose.pages import HUGE_PAGE, keep_freed_memory, use_huge_pages


def test_memory_keeps_what_it_holds() -> None:
    tensor = torch.arange(3 * HUGE_PAGE // 8)
    assert use_huge_pages([(tensor.data_ptr(), tensor.nbytes)]) in range(5)
    assert torch.equal(tensor, torch.arange(3 * HUGE_PAGE // 8))


def test_addresses_of_nothing_are_refused_by_the_system() -> None:
    assert use_huge_pages([(mmap.PAGESIZE, mmap.PAGESIZE)]) == 0
    assert use_huge_pages([]) == 0


def test_packed_products_are_the_reference_s() -> None:
    keep_freed_memory()
    torch.manual_seed(0)
    linear = nn.Linear(96, 1200)
    x = torch.randn(11, 96)
    expected = reference.linear(x, linear.weight, linear.bias)
    onednn.pack(nn.Sequential(linear))
    torch.testing.assert_close(onednn.linear(x, linear.weight, linear.bias), expected, rtol=1e-5, atol=1e-5)
