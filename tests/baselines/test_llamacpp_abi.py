"""The proof that a build of llama.cpp is the one whose structures are written down here."""

import ctypes
from pathlib import Path

import pytest

from baselines import install
from baselines.errors import BaselineError
from baselines.llamacpp import LlamaCpp
from baselines.llamacpp_abi import ContextParams, ModelParams, check_defaults
from tests.baselines.conftest import FakeNpm


class Small(ctypes.Structure):
    """A structure with a field of each kind that the checks meet."""

    _fields_ = [
        ("mask", ctypes.c_bool * 4),
        ("count", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("callback", ctypes.c_void_p),
        ("on", ctypes.c_bool),
    ]


DEFAULTS = {"count": 3, "scale": -1.0, "on": True}


def test_defaults_in_their_fields_pass() -> None:
    check_defaults("small", Small(count=3, scale=-1.0, on=True), DEFAULTS)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"count": 4}, r"small\.count is 4 by default, 3 is expected"),
        ({"scale": 0.0}, r"small\.scale is 0 by default, -1\.0 is expected"),
        ({"callback": 16}, r"small\.callback is 16 by default, 0 is expected"),
        ({"on": False}, r"small\.on is 0 by default, True is expected"),
        ({"mask": (ctypes.c_bool * 4)(False, True)}, r"small\.mask is True by default, 0 is expected"),
    ],
)
def test_a_default_elsewhere_is_refused(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(BaselineError, match=sentence):
        check_defaults("small", Small(**{"count": 3, "scale": -1.0, "on": True, **change}), DEFAULTS)


def test_structures_have_the_sizes_of_the_header() -> None:
    assert (ctypes.sizeof(ModelParams), ctypes.sizeof(ContextParams)) == (80, 160)


def test_another_library_is_refused(cache: Path, npm: FakeNpm) -> None:
    install.install(install.LLAMACPP)
    with pytest.raises(BaselineError, match=r"libggml-base\.so is not the library that is needed"):
        LlamaCpp()
