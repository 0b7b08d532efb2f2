"""The other process: makes an object, answers calls to it, and ends with its owner.

    python -m pipeline.processes.serve MODULE:CLASS FD    (FD is a connected socket)

``Servant`` is the object and its calls, the same for both ends. The module is imported at once, beside
whatever the owner does; the object is made when its arguments come. The connection is the process's life:
when it closes, because the owner has ended or has died, the process ends, whatever it is doing.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import os
import signal
import socket
import sys
import traceback
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

from pipeline.processes.wire import Answer, Call, Cancel, Cancelled, Done, Failed, Item, receive, send


class Servant:
    """An object of ``target`` (MODULE:CLASS) and the calls to it. Belongs to one event loop.

    Plain methods have one thread, in which the object of a class without asynchronous ones is made as well.
    """

    def __init__(self, target: str, arguments: tuple[Any, ...]) -> None:
        self._target = target
        self._arguments = arguments
        self._object: asyncio.Task[Any] | None = None
        self._thread = ThreadPoolExecutor(1, "calls")
        self._beside = ThreadPoolExecutor(1, "calls beside")
        self._calls: dict[int, asyncio.Task[Any] | None] = {}  # None until it begins

    def expect(self, call: Call) -> None:
        """Note that ``call`` has come, so that from now on it can be cancelled."""
        self._calls[call.call_id] = None

    async def answer(self, call: Call) -> Answer:
        """What came of a ``call`` that is no stream."""
        try:
            self._begin(call)
            return Done(call_id=call.call_id, value=await self._value(call))
        except asyncio.CancelledError:
            return Cancelled(call_id=call.call_id)
        except Exception as error:
            return await self.failed(call, error)
        finally:
            self._calls.pop(call.call_id, None)

    async def answers(self, call: Call) -> AsyncGenerator[Answer]:
        """The items of a stream, and then its end."""
        end: Answer = Done(call_id=call.call_id)
        try:
            self._begin(call)
            items: AsyncIterator[Any] = getattr(await self.made(), call.method)(*call.arguments)
            try:
                async for item in items:
                    yield Item(call_id=call.call_id, value=item)
            finally:
                await items.aclose()  # type: ignore[attr-defined]
        except asyncio.CancelledError:
            end = Cancelled(call_id=call.call_id)
        except Exception as error:
            end = await self.failed(call, error)
        finally:
            self._calls.pop(call.call_id, None)
        yield end

    def cancel(self, call_id: int) -> None:
        """End that call, if it is not over; a plain method that has begun goes on."""
        task = self._calls.get(call_id)
        if task is not None:
            task.cancel()
        else:
            # Not begun: when its turn comes it is not expected any more.
            self._calls.pop(call_id, None)

    async def clear(self) -> None:
        """Cancel all calls, and wait until they have ended."""
        left = [task for task in self._calls.values() if task is not None]
        for call_id in list(self._calls):
            self.cancel(call_id)
        await asyncio.gather(*left, return_exceptions=True)

    async def made(self) -> Any:
        """The object; raises what its constructor raised."""
        if self._object is None:
            self._object = asyncio.create_task(self._make())
        return await asyncio.shield(self._object)

    async def failed(self, call: Call, error: Exception) -> Failed:
        """The answer to a ``call`` that raised ``error``."""
        return Failed(
            call_id=call.call_id,
            error=f"{type(error).__name__}: {error}",
            trace="".join(traceback.format_exception(error)),
        )

    def _begin(self, call: Call) -> None:
        assert not call.method.startswith("_")
        if call.call_id not in self._calls:
            raise asyncio.CancelledError
        self._calls[call.call_id] = asyncio.current_task()

    async def _make(self) -> Any:
        kind = find_class(self._target)
        members = [member for _, member in inspect.getmembers(kind, inspect.isfunction)]
        if any(inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in members):
            return kind(*self._arguments)
        return await asyncio.get_running_loop().run_in_executor(self._thread, kind, *self._arguments)

    async def _value(self, call: Call) -> Any:
        method = getattr(await self.made(), call.method)
        if inspect.iscoroutinefunction(method):
            return await method(*call.arguments)
        job = (self._beside if call.is_beside else self._thread).submit(method, *call.arguments)
        while True:
            waiting = asyncio.wrap_future(job)
            try:
                return await asyncio.shield(waiting)
            except asyncio.CancelledError:
                if job.cancel():
                    raise


def find_class(target: str) -> Any:
    """The class that MODULE:CLASS names."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


async def serve(servant: Servant, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the calls that come, until the other end is gone; ``clear`` ends those that run then."""
    jobs: set[asyncio.Task[None]] = set()

    async def answer(call: Call) -> None:
        try:
            if call.is_stream:
                async with aclosing(servant.answers(call)) as answers:
                    async for item in answers:
                        send(writer, item)
                        await writer.drain()
            else:
                send(writer, await servant.answer(call))
                await writer.drain()
        except ConnectionError:
            pass

    try:
        while True:
            message = await receive(reader)
            if isinstance(message, Cancel):
                servant.cancel(message.call_id)
                continue
            servant.expect(message)
            jobs.add(job := asyncio.create_task(answer(message)))
            job.add_done_callback(jobs.discard)
    except EOFError:
        return


async def _serve_owner(target: str, connection: socket.socket) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    servant = Servant(target, await receive(reader))
    making = asyncio.create_task(servant.made())
    # What it raises is told to whoever calls.
    making.add_done_callback(lambda made: made.cancelled() or made.exception())
    await serve(servant, reader, writer)
    # In the middle of a call, perhaps: what it started ends with this process.
    _leave(0)


def _leave(status: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> None:
    """Serve the inherited descriptor, which no child of this process shall hold."""
    # One to all processes of a unit, as at a shutdown, is for the driver, which still needs this one. What is
    # started here has the default again.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    connection = socket.socket(fileno=int(sys.argv[2]))
    connection.set_inheritable(False)
    target = sys.argv[1]
    # What is imported stays: to look through it for garbage takes a fifth of the time.
    gc.disable()
    find_class(target)
    gc.freeze()
    gc.enable()
    try:
        asyncio.run(_serve_owner(target, connection))
    except EOFError:
        _leave(0)
    except Exception:
        traceback.print_exc()
        _leave(1)


if __name__ == "__main__":
    main()
