"""A server on a real Unix socket with handlers a test can hold at a gate, and raw clients."""

import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from msgspec import Struct

from vastd.errors import IllegalTransition, NotFound
from vastd.rpc.dispatch import Call, Dispatcher, handles
from vastd.rpc.hub import Hub
from vastd.rpc.server import serve
from vastd_protocol.framing import Decoder, frame
from vastd_protocol.methods import access, daemon, event, job, log, offer, rental
from vastd_protocol.methods.event import EventView


class MemoryAnswers:
    """Stored answers that live as long as the test."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.puts: list[tuple[str, str]] = []

    def get(self, request_id: str) -> bytes | None:
        return self.stored.get(request_id)

    def put(self, request_id: str, method: str, body: bytes) -> None:
        self.puts.append((request_id, method))
        self.stored[request_id] = body


class MemoryEvents:
    """The stored events; `reads` counts pages."""

    def __init__(self) -> None:
        self.views: list[EventView] = []
        self.reads = 0

    def newest_cursor(self) -> int:
        return len(self.views)

    def events_after(self, cursor: int, limit: int) -> Sequence[EventView]:
        self.reads += 1
        return self.views[cursor : cursor + limit]

    def add(self, **changes: Any) -> EventView:
        defaults: dict[str, Any] = {"at": "2026-11-30T12:00:00Z", "kind": "rental.ready"}
        view = EventView(cursor=len(self.views) + 1, **(defaults | changes))
        self.views.append(view)
        return view


class MemoryLogs:
    """Logs by job; a job is finished when the test says so."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.over: set[str] = set()

    def size(self, job_id: str) -> int:
        return len(self.data.get(job_id, b""))

    def read(self, job_id: str, offset: int, limit: int) -> bytes:
        return self.data.get(job_id, b"")[offset : offset + limit]

    def finished(self, job_id: str) -> bool:
        return job_id in self.over


class World:
    """What the handlers below work on."""

    def __init__(self) -> None:
        self.answers = MemoryAnswers()
        self.events = MemoryEvents()
        self.logs = MemoryLogs()
        self.hub = Hub(self.events, self.logs, log_lag_bytes=200_000)
        self.began = trio.Event()
        self.gate = trio.Event()
        self.waits = 0
        self.over = trio.Event()
        self.begun = 0  # changes
        self.destroyed: list[str] = []
        self.seal = False
        self.failure: Exception | None = None


@handles(daemon.STATUS)
async def status(ctx: World, params: daemon.Nothing) -> daemon.DaemonStatusView:
    await trio.lowlevel.checkpoint()
    info = daemon.DaemonInfo(
        version="0.1.0", pid=1, started_at="2026-11-30T12:00:00Z", simulated=True
    )
    return daemon.DaemonStatusView(daemon=info, state_dir="/s", socket="/s/x", vast_url="http://x")


@handles(rental.GET)
async def rental_get(ctx: World, params: rental.RentalRef) -> rental.RentalView:
    if params.rental == "bug":
        raise IllegalTransition("the secret of the bug")
    if params.rental == "crash":
        raise ZeroDivisionError("another secret")
    raise NotFound(f"no rental {params.rental!r}", hint="vastctl ls")


@handles(job.WAIT)
async def job_wait(ctx: World, params: job.JobWaitParams) -> job.JobWaitView:
    ctx.waits += 1
    ctx.began.set()
    try:
        await ctx.gate.wait()
    finally:
        ctx.waits -= 1
        ctx.over.set()
    view = job.JobView(job_id="j-1", name="train", command=["true"], state="succeeded")
    return job.JobWaitView(job=view, settled=True)


@handles(rental.DESTROY)
async def destroy(ctx: World, params: rental.RentalDestroyParams, call: Call) -> rental.RentalView:
    ctx.begun += 1
    ctx.began.set()
    await ctx.gate.wait()
    if ctx.failure is not None:
        raise ctx.failure
    ctx.destroyed.append(params.rental or "")
    view = rental.RentalView(rental_id=params.rental or "", name="n", phase="destroying")
    if ctx.seal:
        assert call.request_id is not None
        ctx.answers.stored[call.request_id] = call.seal(view)
    return view


@handles(access.EXEC)
async def exec_run(ctx: World, params: access.ExecParams) -> access.ExecView:
    return access.ExecView(rental_id="r-1", exit_code=0, stdout=params.command, stderr="")


@handles(offer.SEARCH)
async def offer_search(ctx: World, params: offer.OfferSearchParams) -> offer.OffersView:
    """An answer of about `limit` bytes."""
    return offer.OffersView(as_of="x" * params.limit)


@handles(event.SUBSCRIBE)
async def subscribe(
    ctx: World, params: event.EventSubscribeParams, call: Call
) -> event.EventSubscriptionView:
    return ctx.hub.follow_events(
        call,
        after=params.after,
        rental_id=params.rental,
        job_id=params.job,
        progress=params.progress,
    )


@handles(event.UNSUBSCRIBE)
async def unsubscribe(
    ctx: World, params: event.EventUnsubscribeParams, call: Call
) -> event.EventUnsubscribeView:
    found = ctx.hub.unsubscribe(call.peer, params.subscription_id)
    return event.EventUnsubscribeView(found=found)


@handles(log.SUBSCRIBE)
async def log_subscribe(
    ctx: World, params: log.LogSubscribeParams, call: Call
) -> log.LogSubscriptionView:
    return ctx.hub.follow_log(call, job_id=params.job or "j-1", offset=params.offset)


HANDLERS = [
    status,
    rental_get,
    job_wait,
    destroy,
    exec_run,
    offer_search,
    subscribe,
    unsubscribe,
    log_subscribe,
]


class Client:
    """A raw client: bytes out, whole messages in."""

    def __init__(self, stream: trio.SocketStream, *, lines: bool) -> None:
        self.stream = stream
        self.lines = lines
        self._decoder = Decoder()
        self._got: list[bytes] = []
        self._last_id = 0

    async def send(self, message: object) -> None:
        body = json.dumps(message).encode()
        await self.stream.send_all(body + b"\n" if self.lines else frame(body))

    async def request(self, method: str, params: object = None, **extra: Any) -> int:
        """Send a request and return its id, without waiting for the answer."""
        self._last_id += 1
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        await self.send(message | extra)
        return self._last_id

    async def call(self, method: str, params: object = None, **extra: Any) -> Any:
        await self.request(method, params, **extra)
        return await self.receive()

    async def receive(self) -> Any:
        """Return the next message, None at the end."""
        while not self._got:
            data = await self.stream.receive_some(65536)
            if not data:
                return None
            self._got += self._decoder.feed(data)
        return json.loads(self._got.pop(0))

    async def rest(self) -> list[Any]:
        """Return all messages up to the end."""
        found = []
        while (message := await self.receive()) is not None:
            found.append(message)
        return found


class Rig(Struct):
    """A running server."""

    world: World
    path: Path
    stop: trio.Event
    stopped: trio.Event

    @asynccontextmanager
    async def client(self, *, lines: bool = False) -> AsyncIterator[Client]:
        stream = await trio.open_unix_socket(str(self.path))
        async with stream:
            yield Client(stream, lines=lines)


@asynccontextmanager
async def running(path: Path, *, limit_s: float = 20, **options: Any) -> AsyncIterator[Rig]:
    """Serve `HANDLERS` on a Unix socket at `path`."""
    world = World()
    dispatcher = Dispatcher(world, HANDLERS, world.answers)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(str(path))
    sock.listen(64)
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
    rig = Rig(world, path, trio.Event(), trio.Event())

    async def run(task_status: trio.TaskStatus[None]) -> None:
        await serve([listener], dispatcher, stop=rig.stop, task_status=task_status, **options)
        rig.stopped.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(run)
        with trio.fail_after(limit_s):
            yield rig
        nursery.cancel_scope.cancel()
