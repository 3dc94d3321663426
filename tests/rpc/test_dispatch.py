"""The table of handlers."""

import sys
from types import ModuleType

import pytest
import trio
from msgspec import UNSET

from rpc import rig
from rpc.rig import HANDLERS, MemoryAnswers, World
from vastd.rpc.dispatch import Call, Dispatcher, collect, guarded
from vastd_protocol.errors import ErrorCode
from vastd_protocol.methods import daemon


class Peer:
    number = 3


def test_collect_finds_the_handlers_of_a_module():
    assert {handler.method.name for handler in collect(rig)} == {
        handler.method.name for handler in HANDLERS
    }
    assert collect(ModuleType("empty")) == []


async def test_a_handler_can_be_called_like_the_function_it_was():
    view = await rig.status(World(), daemon.Nothing())

    assert view.daemon.pid == 1


def test_two_handlers_for_one_method_are_a_bug():
    with pytest.raises(AssertionError, match=r"daemon\.status"):
        Dispatcher(World(), [rig.status, rig.status], MemoryAnswers())


async def test_a_method_of_the_table_without_a_handler_is_unknown():
    dispatcher = Dispatcher(World(), [rig.status], MemoryAnswers())

    async with trio.open_nursery() as nursery:
        told = await dispatcher.answer("job.list", UNSET, Call(Peer(), 1), nursery)

    assert told.code == ErrorCode.METHOD_NOT_FOUND


async def test_an_error_beside_a_cancellation_is_logged_and_the_cancellation_goes_on(caplog):
    async def fails_while_cancelled():
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while ending")

    async def run():
        async with trio.open_nursery() as inner:
            inner.start_soon(fails_while_cancelled)
            inner.start_soon(trio.sleep_forever)
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
            await trio.sleep_forever()

    with trio.CancelScope() as scope:
        scope.cancel()
        await guarded(run, "job.wait", Call(Peer(), 1), mutates=False)

    assert "method=job.wait id=1" in caplog.text


@pytest.mark.e2e
def test_a_type_checker_rejects_a_handler_whose_types_differ_from_the_row(tmp_path):
    api = pytest.importorskip("mypy.api")
    source = tmp_path / "handlers.py"
    source.write_text(
        "from vastd.rpc.dispatch import Call, handles\n"
        "from vastd_protocol.methods.rental import GET, RentalDestroyParams, RentalRef, RentalView\n"
        "class Context: ...\n"
        "@handles(GET)\n"
        "async def good(ctx: Context, params: RentalRef) -> RentalView: raise ValueError\n"
        "@handles(GET)\n"
        "async def also(ctx: Context, params: RentalRef, call: Call) -> RentalView: raise ValueError\n"
        "@handles(GET)\n"
        "async def params(ctx: Context, params: RentalDestroyParams) -> RentalView: raise ValueError\n"
        "@handles(GET)\n"
        "async def result(ctx: Context, params: RentalRef) -> RentalRef: raise ValueError\n"
        "@handles(GET)\n"
        "def plain(ctx: Context, params: RentalRef) -> RentalView: raise ValueError\n"
    )

    output, _, _ = api.run(["--strict", "--python-executable", sys.executable, str(source)])

    lines = [line.split(":")[1] for line in output.splitlines() if "arg-type" in line]
    assert lines == ["8", "10", "12"], output
