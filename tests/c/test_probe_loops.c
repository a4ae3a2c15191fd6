/* test_probe_loops.c - the loops of the roofs read every byte that they are timed for, and count what they compute. */
#include "cflow.h"
#include "check.h"
#include "probe_loops.h"

#include <string.h>

enum { BYTES = 64 * 1024 };

static _Alignas(64) uint8_t data[BYTES];

static void check_sum(unsigned streams, unsigned prefetch)
{
    const uint64_t part = BYTES / streams / 256 * 256;
    uint64_t expected = 0;
    for (size_t at = 0; at < part * streams; at += 8) {
        uint64_t word;
        memcpy(&word, data + at, sizeof word);
        expected += word;
    }
    CHECK(cf_loop_read(data, part, streams, prefetch) == expected);
}

int main(void)
{
    uint32_t state = 1;
    for (size_t i = 0; i < BYTES; i++) {
        state = state * 1664525u + 1013904223u;
        data[i] = (uint8_t)(state >> 24);
    }
    for (unsigned streams = 1; streams <= 4; streams++) {
        check_sum(streams, 0);
        check_sum(streams, 4096);
    }
    CHECK(cf_loop_operations(-1) == 0 && cf_loop_operations(CFLOW_ISA_COUNT) == 0);
    for (int isa = 0; isa < CFLOW_ISA_COUNT; isa++) {
        const uint64_t operations = cf_loop_operations(isa);
        CHECK(operations > 0 || isa != CFLOW_ISA_SCALAR);
        if (operations > 0) {
            CHECK(operations % 24 == 0 && operations >= cf_loop_operations(CFLOW_ISA_SCALAR));
            CHECK(cf_loop_multiply_add(isa, 1) > 0.0f && cf_loop_multiply_add(isa, 1000) > 0.0f);
        }
    }
    return check_summary("test_probe_loops");
}
