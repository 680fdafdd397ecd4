"""Refusals of one share, in the words of the client who knows only the whole request."""

import asyncio
from collections.abc import Sequence as AnySequence
from types import SimpleNamespace
from typing import Any

import pytest

from rosebed.core.errors import ContextLengthExceeded, Overloaded, RequestError
from rosebed.core.types import Lane, Sequence
from rosebed.ivy.upstream.balancer import Balancer
from rosebed.ivy.upstream.shares import MessageLimits
from rosebed.testing import fake_sequence


def refusing(error: RequestError, *, at_least: int = 1) -> Any:
    """A replica that refuses requests whose first sequence has `at_least` tokens; others it never answers."""

    async def request(sequences: AnySequence[Sequence], _lane: Lane) -> Any:
        if sequences[0].num_tokens >= at_least:
            raise error
        await asyncio.Event().wait()

    return SimpleNamespace(ready=True, outstanding_tokens=0, limits=MessageLimits(sequences=4), request=request)


async def refusal_of(replica: Any, sequences: list[Sequence]) -> RequestError:
    async def accept(_info: Any) -> None: ...

    balancer = Balancer((), accept, on_retry=lambda: None)
    balancer.replicas = (replica,)
    with pytest.raises(RequestError) as refused:
        await balancer.embed(sequences, Lane.ONLINE)
    return refused.value


def too_long(index: int) -> ContextLengthExceeded:
    name = f"sequences[{index}]"
    return ContextLengthExceeded(f"{name} has 9 tokens, this model takes 8", param=name)


async def test_a_refused_sequence_is_called_by_the_clients_name() -> None:
    refusal = await refusal_of(refusing(too_long(2)), [fake_sequence([1, 2])] * 3)
    assert isinstance(refusal, ContextLengthExceeded)
    assert refusal.param == "input[2]"
    assert str(refusal) == refusal.message == "input[2] has 9 tokens, this model takes 8"


async def test_it_is_counted_over_the_whole_request() -> None:
    sequences = [fake_sequence([1])] * 8 + [fake_sequence([1, 2])] * 2
    refusal = await refusal_of(refusing(too_long(1), at_least=2), sequences)
    assert (refusal.param, refusal.message.split()[0]) == ("input[9]", "input[9]")


async def test_a_refusal_that_names_no_sequence_stays_as_it_is() -> None:
    refusal = await refusal_of(refusing(Overloaded("full", retry_after_s=7)), [fake_sequence([1])])
    assert isinstance(refusal, Overloaded)
    assert (refusal.message, refusal.retry_after_s, refusal.param) == ("full", 7, None)
