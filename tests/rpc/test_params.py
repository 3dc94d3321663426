"""Wrong parameters are named, with the field that was probably meant."""

import msgspec
import pytest
from msgspec import UNSET, Raw

from vastd.rpc.errors import RpcError
from vastd.rpc.params import decode_params
from vastd_protocol.errors import ErrorCode
from vastd_protocol.methods import job, rental


def decode(raw, row=job.SUBMIT):
    return decode_params(row, msgspec.json.Decoder(row.params), raw)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"comand":[]}', "unknown field 'comand'; did you mean 'command'?"),
        (
            b'{"command":[],"project":"/p","needs":{"gpu_ran_gb":1}}',
            "unknown field 'gpu_ran_gb' in needs; did you mean 'gpu_ram_gb'?",
        ),
        (b'{"command":[],"project":"/p","qqqq":1}', "unknown field 'qqqq'"),
        (b"{}", "missing required field 'command'"),
        (b'{"command":["a",1],"project":"/p"}', "command[1]: expected str, got int"),
        (
            b'{"command":[],"project":"/p","needs":{"hours":"x"}}',
            "needs.hours: expected float or null, got str",
        ),
        (b'{"command":[],"project":"/p","env":{"A":1}}', "env[...]: expected str, got int"),
        (b"3", "expected object, got int"),
        (b"[1]", "expected object, got int"),
        (b"[{},{}]", "params must be one object, got 2"),
        (b'"x"', "expected object, got str"),
        (b'{"command":[1e999],"project":"/p"}', "command[0]: number out of range"),
    ],
)
def test_wrong_parameters_are_named_with_their_place(text, message):
    with pytest.raises(RpcError) as caught:
        decode(Raw(text))

    assert caught.value.code == ErrorCode.INVALID_PARAMS
    assert str(caught.value) == f"job.submit: {message}"


def test_an_unknown_field_lists_the_known_ones():
    with pytest.raises(RpcError) as caught:
        decode(Raw(b'{"nonsense":1}'), rental.GET)

    assert caught.value.hint == "fields: project, rental"


@pytest.mark.parametrize("text", [b"null", b"[]", b"[null]", b"{}", b"[{}]", b" [ ] "])
def test_spellings_of_nothing_leave_every_default(text):
    assert decode(Raw(text), rental.LIST) == rental.RentalListParams()
    assert decode(UNSET, rental.LIST) == rental.RentalListParams()


def test_parameters_nested_too_deep_are_an_error_and_no_crash():
    with pytest.raises(RpcError):
        decode(Raw(b'{"command":' + b"[" * 50_000))
