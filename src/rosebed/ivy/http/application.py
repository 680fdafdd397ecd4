"""Routes, endpoints and what runs beside them, as one thing that answers requests."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from rosebed.core.errors import RosebedError
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Endpoint
from rosebed.ivy.http.packer import Packer
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.http.router import Router


class Application:
    """One worker's. Answers while the context of `running` lasts."""

    def __init__(
        self,
        router: Router[Endpoint],
        running: Callable[[], AbstractAsyncContextManager[None]],
        *,
        packer: Packer | None = None,
    ) -> None:
        """`running` is what its endpoints need at work; `packer` packs answers for clients that take them so."""
        self._router = router
        self._packer = packer
        self.running = running

    def answer(self, call: Call) -> Awaitable[Reply]:
        """The answer to `call`. Raises nothing, unless it is cancelled."""
        endpoint, parameters = self._router.find(call.target)
        if parameters is not None:
            call.path_parameters = parameters
        return endpoint.answer(call) if self._packer is None else self._packer.packed(call, endpoint.answer(call))

    def refuse(self, error: RosebedError) -> Reply:
        """The answer to what is no request."""
        return self._router.default.refuse_uncalled(error)
