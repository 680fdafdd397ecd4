"""An inference server in a process of its own: prints its port, serves until it is killed. Argument: a checkpoint."""

import asyncio
import sys
from pathlib import Path

from ivy_support import engine_info, running_tulip

from rosebed.testing import FakeEngine


async def main(checkpoint: Path) -> None:
    async with running_tulip(FakeEngine(engine_info(checkpoint))) as server:
        print(server.port, flush=True)  # noqa: T201 - what the test waits for
        await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
