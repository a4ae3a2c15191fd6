/* probe_cold.c - what prefetch hints do over a mapping whose pages are not in memory. */
#define _GNU_SOURCE /* RUSAGE_THREAD */

#include "error.h"
#include "hints.h"
#include "model.h"
#include "pool.h"
#include "session.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* MADV_WILLNEED reads no more than the readahead of the disk in one call: this is the kernel's least default. */
enum { ADVICE_BYTES = 128 * 1024, PAGE = 4096 };

static int range_valid(const cflow_model *model, uint64_t offset, uint64_t bytes)
{
    return bytes > 0 && offset <= model->file_bytes && bytes <= model->file_bytes - offset;
}

/* Page faults of the calling thread (elsewhere than on Linux: of the process) so far. */
static int count_faults(uint64_t *faults_out)
{
    struct rusage usage;
#ifdef RUSAGE_THREAD
    const int who = RUSAGE_THREAD;
#else
    const int who = RUSAGE_SELF;
#endif
    if (getrusage(who, &usage) != 0) {
        return cf_fail(CFLOW_ERR_IO, "getrusage: %s", strerror(errno));
    }
    *faults_out = (uint64_t)usage.ru_minflt + (uint64_t)usage.ru_majflt;
    return CFLOW_OK;
}

int cflow_probe_hints(const cflow_model *model, uint64_t offset, uint64_t bytes, uint32_t stride, int hint,
                      uint64_t *hints_out, uint64_t *faults_out, uint64_t *ns_out)
{
    if (model == NULL || hints_out == NULL || faults_out == NULL || ns_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_probe_hints: NULL argument");
    }
    if (!range_valid(model, offset, bytes) || stride == 0 || hint < CFLOW_PREFETCH_NONE || hint > CFLOW_PREFETCH_NTA) {
        return cf_fail(
            CFLOW_ERR_ARGUMENT,
            "%s: %llu bytes from %llu on (allowed: 1 and more, inside the file of %llu), stride %u (allowed: "
            "1 and more), hint %d (allowed: 0 to 4)",
            model->path, (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)model->file_bytes,
            stride, hint);
    }
    /* Code that runs for the first time is faulted in: not by the hints that are counted. */
    const uint8_t here = 0;
    (void)cf_hints_give(&here, 1, 1, hint);
    (void)cf_now_ns();
    uint64_t before;
    int status = count_faults(&before);
    if (status != CFLOW_OK) {
        return status;
    }
    const uint64_t start_ns = cf_now_ns();
    *hints_out = cf_hints_give(model->map + offset, bytes, stride, hint);
    *ns_out = cf_now_ns() - start_ns;
    status = count_faults(faults_out);
    *faults_out -= status == CFLOW_OK ? before : *faults_out;
    return status;
}

/* MADV_WILLNEED over whole pages; it starts reads and does not wait for them. */
static int will_need(const cflow_model *model, uint64_t offset, uint64_t bytes)
{
    const uint64_t end = offset + bytes;
    for (uint64_t at = offset / cf_page_bytes() * cf_page_bytes(); at < end; at += ADVICE_BYTES) {
        const uint64_t length = end - at < ADVICE_BYTES ? end - at : ADVICE_BYTES;
        if (madvise((void *)(uintptr_t)(model->map + at), (size_t)length, MADV_WILLNEED) != 0) {
            return cf_fail(CFLOW_ERR_IO, "%s: MADV_WILLNEED of %llu bytes from %llu on: %s", model->path,
                           (unsigned long long)length, (unsigned long long)at, strerror(errno));
        }
    }
    return CFLOW_OK;
}

/* A sum in which the order counts, so that no pass can be left out. bytes: a multiple of 8. */
static uint64_t sum_block(const uint8_t *data, uint64_t bytes, uint32_t passes, uint64_t sum)
{
    for (uint32_t pass = 0; pass < passes; pass++) {
        for (uint64_t at = 0; at < bytes; at += 8) {
            uint64_t word;
            memcpy(&word, data + at, sizeof word);
            sum = (sum << 1 | sum >> 63) + word;
        }
    }
    return sum;
}

int cflow_probe_blocks(const cflow_model *model, uint64_t offset, uint64_t bytes, uint64_t block_bytes, uint32_t passes,
                       int ahead, uint64_t *ns_out, uint64_t *sum_out)
{
    if (model == NULL || ns_out == NULL || sum_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_probe_blocks: NULL argument");
    }
    if (!range_valid(model, offset, bytes) || block_bytes == 0 || block_bytes % PAGE != 0 || bytes % block_bytes != 0 ||
        passes == 0 || ahead < CFLOW_AHEAD_NONE || ahead > CFLOW_AHEAD_WILLNEED) {
        return cf_fail(CFLOW_ERR_ARGUMENT,
                       "%s: %llu bytes from %llu on (allowed: whole blocks inside the file of %llu), blocks of %llu "
                       "(allowed: multiples of %d), %u passes (allowed: 1 and more), ahead %d (allowed: 0 to %d)",
                       model->path, (unsigned long long)bytes, (unsigned long long)offset,
                       (unsigned long long)model->file_bytes, (unsigned long long)block_bytes, PAGE, passes, ahead,
                       CFLOW_AHEAD_WILLNEED);
    }
    uint64_t sum = 0;
    int status = CFLOW_OK;
    const uint64_t end = offset + bytes, start_ns = cf_now_ns();
    for (uint64_t at = offset; at < end && status == CFLOW_OK; at += block_bytes) {
        const uint64_t next = at + block_bytes;
        if (next < end && ahead == CFLOW_AHEAD_WILLNEED) {
            status = will_need(model, next, block_bytes);
        } else if (next < end) {
            (void)cf_hints_give(model->map + next, block_bytes, CF_LINE, ahead);
        }
        sum = sum_block(model->map + at, block_bytes, passes, sum);
    }
    *ns_out = cf_now_ns() - start_ns;
    *sum_out = sum;
    return status;
}
