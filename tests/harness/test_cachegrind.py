"""cachegrind's files, and its counts of real kernels against the model's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from claims.l1 import Product
from engine.enums import Isa
from engine.kernels import isa_supported
from harness.cachegrind import CachegrindError, available, of_function, parse, run
from harness.cachesim import E5_2650

FILE = """desc: D1 cache: 32768 B, 64 B, 8-way associative
cmd: ./driver
events: Ir Dr D1mr
fl=a.c
fn=kernel
10 100 20 3
fe=b.h
11 1 1 1
fn=kernel.part.0
0 5 5 5
fn=kernel_of_another
0 1000 1000 1000
fl=c.c
fn=kernel
12 10 2
summary: 1116 1028 1009
"""


def test_counts_are_summed_by_function() -> None:
    counts = parse(FILE)
    assert counts["kernel"].events == {"Ir": 111, "Dr": 23, "D1mr": 4}
    whole = of_function(counts, "kernel")
    assert (whole.reads, whole.read_misses) == (28, 9)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no events"),
        ("events: Ir\nfn=f\n1 2 3\n", "line 3"),
        ("events: Ir\n1 2\n", "line 2"),
        ("events: Ir\nfn=f\n1 x\n", "line 3"),
    ],
)
def test_damaged_files_are_refused_by_line(text: str, words: str) -> None:
    with pytest.raises(CachegrindError, match=words):
        parse(text)


def test_a_function_that_is_not_there_is_named() -> None:
    with pytest.raises(CachegrindError, match="no function q4_0f32"):
        of_function(parse(FILE), "q4_0f32")


needs_valgrind = pytest.mark.skipif(not available(), reason="valgrind is not installed")
needs_avx2 = pytest.mark.skipif(not isa_supported(Isa.AVX2), reason="no AVX2")


@pytest.mark.no_sanitizer
@needs_valgrind
def test_a_failing_program_shows_its_message() -> None:
    driver = Product(16, 32).driver
    with pytest.raises(CachegrindError, match="no kernel: nothing"):
        run([driver, "nothing", "16", "32", "128", "256"], E5_2650)
    with pytest.raises(CachegrindError, match="not a number"):
        run([driver, "nothing", "16", "-1", "128", "256"], E5_2650)


@pytest.mark.no_sanitizer
@needs_valgrind
def test_variables_reach_the_program() -> None:
    test = ["/bin/sh", "-c", 'test "$CFLOW_TRACED" = yes']
    assert run(test, E5_2650, {"CFLOW_TRACED": "yes"})
    with pytest.raises(CachegrindError, match="exited with 1"):
        run(test, E5_2650)


@pytest.mark.no_sanitizer
@needs_valgrind
@needs_avx2
@pytest.mark.parametrize("q8", [False, True], ids=["f32", "q8"])
@pytest.mark.parametrize("rows_per_pass", [0, 1, 8])
def test_the_model_agrees_with_cachegrind_within_2_percent(rows_per_pass: int, q8: bool) -> None:
    product = replace(Product(256, 8192), rows_per_pass=rows_per_pass, q8=q8)
    # cachegrind's cache holds what prepared the vector when the kernel starts, the model's is empty:
    # enough rows make that small.
    model, counted = product.simulated(), product.cachegrind()
    assert model.read_misses == pytest.approx(counted.read_misses, rel=0.02)
    # valgrind splits wide loads and the compiler adds some: never fewer than the source has.
    assert counted.reads >= model.reads
