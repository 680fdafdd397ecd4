"""What is behind one configured address: one replica, or one for each address that a name stands for at the time."""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable

from rosebed.ivy.upstream.replica import Replica

SHORTEST_S = 1.0
"""Names are looked up no more often than this, however many connections are lost."""

MakeReplica = Callable[[str, Callable[[], None]], Replica]
"""Makes the replica at an address; what it is given is to be called whenever its connection fails."""

_log = logging.getLogger(__name__)


class Address:
    """The replicas behind `target`, which join and leave as its name's addresses do."""

    def __init__(
        self, target: str, make: MakeReplica, on_change: Callable[[], None], *, resolve_every_s: float
    ) -> None:
        """`on_change` is called when there are others than before."""
        self.target = target
        """As configured."""
        self.replicas: dict[str, Replica] = {}
        """Numeric address → the replica there, for those that may be asked."""
        self._make = make
        self._on_change = on_change
        self._resolve_every_s = resolve_every_s
        self._leaving: set[Replica] = set()
        self._running: dict[Replica, asyncio.Task[None]] = {}
        self._lost = asyncio.Event()
        self._last_reason = ""
        if is_final(target):
            self._add(target)

    @property
    def num_ready(self) -> int:
        """Replicas that can be asked now."""
        return sum(replica.ready for replica in self.replicas.values())

    @property
    def outstanding_tokens(self) -> int:
        """Tokens asked for and not got back yet, from those that are leaving too."""
        return sum(replica.outstanding_tokens for replica in (*self.replicas.values(), *self._leaving))

    async def run(self) -> None:
        """Keep every replica connected, and the list of them up to date, until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._run_all(group)
            while not is_final(self.target):
                await self._look_up(group)
                await self._pause()
            await asyncio.Event().wait()

    async def _look_up(self, group: asyncio.TaskGroup) -> None:
        """Follow the name. While it cannot be looked up, those that it stood for before stay."""
        try:
            found = await addresses_of(self.target)
        except OSError as error:
            self._say_once(f"{self.target} cannot be looked up: {error}")
            return
        self._last_reason = ""
        new, gone = found - self.replicas.keys(), self.replicas.keys() - found
        if not new and not gone:
            return
        _log.info("%s is now %s", self.target, ", ".join(sorted(found)))
        for address in sorted(new):
            self._add(address)
        self._run_all(group)
        for address in sorted(gone):
            replica = self.replicas.pop(address)
            self._leaving.add(replica)
            group.create_task(self._let_go(replica))
        self._on_change()

    def _add(self, address: str) -> None:
        self.replicas[address] = self._make(address, self._lost.set)

    def _run_all(self, group: asyncio.TaskGroup) -> None:
        for replica in self.replicas.values():
            if replica not in self._running:
                self._running[replica] = group.create_task(replica.run())

    async def _let_go(self, replica: Replica) -> None:
        """End the connection once what is in flight over it is answered."""
        await replica.idle()
        self._running.pop(replica).cancel()
        self._leaving.discard(replica)

    async def _pause(self) -> None:
        await asyncio.sleep(SHORTEST_S)
        try:
            async with asyncio.timeout(self._resolve_every_s):
                await self._lost.wait()
        except TimeoutError:
            pass
        self._lost.clear()

    def _say_once(self, reason: str) -> None:
        if reason != self._last_reason:
            _log.warning("%s", reason)
            self._last_reason = reason


async def addresses_of(target: str) -> set[str]:
    """The numeric addresses, HOST:PORT each, that `target` stands for now. OSError if it stands for none.

    IPv6 addresses count where there are no others: a host that has both is one server all the same.
    """
    host, _, port = target.rpartition(":")
    found = await asyncio.get_running_loop().getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    hosts = {str(place[0]) for family, *_, place in found if family == socket.AF_INET}
    if hosts:
        return {f"{host}:{port}" for host in hosts}
    return {f"[{place[0]}]:{port}" for family, *_, place in found if family == socket.AF_INET6}


def is_final(target: str) -> bool:
    """Whether `target` is no name that would have to be looked up."""
    if target.startswith("unix:"):
        return True
    host = target.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
