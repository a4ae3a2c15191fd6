#define _GNU_SOURCE
#include "model_input.h"

#include "hash.h"
#include "model.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Noreturn void fuzz_broken(const char *condition, const char *file, int line)
{
    (void)fprintf(stderr, "%s:%d: broken: %s (last error: %s)\n", file, line, condition, cflow_last_error());
    abort();
}

/* Of every way to run a target, by hand too: a failed allocation is the engine's to report. */
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

/* ---- the file ------------------------------------------------------------------------------------------------------ */

static int open_on_disk(void)
{
    const char *folder = getenv("TMPDIR");
    return open(folder == NULL ? "." : folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

const char *fuzz_file(const uint8_t *data, size_t bytes, int on_disk)
{
    static int fds[2] = {-1, -1};
    static char path[64];
    int *fd = &fds[on_disk];
    if (*fd < 0) {
        *fd = on_disk ? open_on_disk() : memfd_create("fuzz", MFD_CLOEXEC);
    }
    FUZZ_REQUIRE(*fd >= 0);
    FUZZ_REQUIRE(ftruncate(*fd, 0) == 0);
    FUZZ_REQUIRE(pwrite(*fd, data, bytes, 0) == (ssize_t)bytes);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", *fd);
    return path;
}

/* ---- fields -------------------------------------------------------------------------------------------------------- */

uint32_t fuzz_get_u32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

uint64_t fuzz_get_u64(const uint8_t *at)
{
    return (uint64_t)fuzz_get_u32(at) | (uint64_t)fuzz_get_u32(at + 4) << 32;
}

void fuzz_put_u32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
}

void fuzz_put_u64(uint8_t *at, uint64_t value)
{
    fuzz_put_u32(at, (uint32_t)value);
    fuzz_put_u32(at + 4, (uint32_t)(value >> 32));
}

static size_t entries(const uint8_t *data, size_t bytes, int offset_field, int count_field, size_t entry_bytes,
                      size_t *table_out)
{
    *table_out = 0;
    if (bytes < FUZZ_HEADER_BYTES) {
        return 0;
    }
    const uint64_t offset = fuzz_get_u64(data + offset_field);
    const size_t count = fuzz_get_u32(data + count_field);
    if (offset < FUZZ_HEADER_BYTES || offset > bytes) {
        return 0;
    }
    *table_out = (size_t)offset;
    const size_t room = (bytes - *table_out) / entry_bytes;
    return count < room ? count : room;
}

size_t fuzz_tensors(const uint8_t *data, size_t bytes, size_t *table_out)
{
    return entries(data, bytes, FUZZ_TABLE_OFFSET, FUZZ_TENSOR_COUNT, FUZZ_TENSOR_BYTES, table_out);
}

size_t fuzz_experts(const uint8_t *data, size_t bytes, size_t *table_out)
{
    return entries(data, bytes, FUZZ_EXPERT_OFFSET, FUZZ_EXPERT_COUNT, FUZZ_EXPERT_BYTES, table_out);
}

/* ---- hashes -------------------------------------------------------------------------------------------------------- */

/* The hash of a region, where it lies in the file. */
static void hash_region(uint8_t *file, size_t bytes, uint64_t offset, uint64_t length, uint8_t *hash)
{
    if (offset <= bytes && length <= bytes - offset) {
        fuzz_put_u64(hash, cf_xxh64_of(file + offset, (size_t)length));
    }
}

void fuzz_hash(uint8_t *file, size_t bytes, int data)
{
    size_t table, bank;
    const size_t tensors = fuzz_tensors(file, bytes, &table), experts = fuzz_experts(file, bytes, &bank);
    if (bytes < FUZZ_HEADER_BYTES) {
        return;
    }
    for (size_t i = 0; data && i < tensors; i++) {
        uint8_t *entry = file + table + i * FUZZ_TENSOR_BYTES;
        hash_region(file, bytes, fuzz_get_u64(entry + FUZZ_TENSOR_OFFSET), fuzz_get_u64(entry + FUZZ_TENSOR_LENGTH),
                    entry + FUZZ_TENSOR_HASH);
    }
    for (size_t i = 0; data && i < experts; i++) {
        uint8_t *entry = file + bank + i * FUZZ_EXPERT_BYTES;
        hash_region(file, bytes, fuzz_get_u64(entry), fuzz_get_u64(entry + 8), entry + 16);
    }
    if (data) {
        hash_region(file, bytes, fuzz_get_u64(file + FUZZ_TOKENIZER_OFFSET), fuzz_get_u64(file + FUZZ_TOKENIZER_BYTES),
                    file + FUZZ_TOKENIZER_HASH);
    }
    cf_xxh64 tables;
    cf_xxh64_init(&tables);
    cf_xxh64_update(&tables, file + table, tensors * FUZZ_TENSOR_BYTES);
    cf_xxh64_update(&tables, file + bank, experts * FUZZ_EXPERT_BYTES);
    fuzz_put_u64(file + FUZZ_TABLES_HASH, cf_xxh64_digest(&tables));
    fuzz_put_u64(file + FUZZ_HEADER_HASH, cf_xxh64_of(file, FUZZ_HEADER_HASH));
}

/* ---- what an open model promises ------------------------------------------------------------------------------------ */

static uint64_t sum_bytes(const uint8_t *data, uint64_t bytes)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < bytes; i++) {
        sum += data[i];
    }
    return sum;
}

static void walk_tensor(const cflow_model *model, uint32_t index, size_t bytes)
{
    uint64_t fields[CFLOW_TENSOR_FIELD_COUNT], data_bytes;
    const void *data;
    FUZZ_REQUIRE(cflow_model_tensor(model, index, fields) == CFLOW_OK);
    FUZZ_REQUIRE(fields[CFLOW_TENSOR_OFFSET] <= bytes &&
                 fields[CFLOW_TENSOR_BYTES] <= bytes - fields[CFLOW_TENSOR_OFFSET]);
    FUZZ_REQUIRE(cflow_type_name((int)fields[CFLOW_TENSOR_TYPE]) != NULL);
    const char *name = cflow_model_tensor_name(model, index);
    FUZZ_REQUIRE(name != NULL && strlen(name) > 0 && strlen(name) < 48);
    FUZZ_REQUIRE(cflow_model_tensor_data(model, index, &data, &data_bytes) == CFLOW_OK);
    FUZZ_REQUIRE(data_bytes == fields[CFLOW_TENSOR_BYTES] && data_bytes % 64 == 0);
    volatile uint64_t sink = sum_bytes(data, data_bytes);
    (void)sink;
}

void fuzz_walk(const cflow_model *model, size_t bytes)
{
    uint32_t value;
    for (int i = 0; i < CFLOW_PARAM_COUNT; i++) {
        FUZZ_REQUIRE(cflow_model_param(model, i, &value) == CFLOW_OK && cflow_model_param_name(i) != NULL);
    }
    FUZZ_REQUIRE(cflow_model_param(model, CFLOW_PARAM_COUNT, &value) == CFLOW_ERR_ARGUMENT);
    FUZZ_REQUIRE(strlen(cflow_model_name(model)) < 64);
    FUZZ_REQUIRE(cflow_model_file_bytes(model) == bytes);
    FUZZ_REQUIRE(cflow_order_name(cflow_model_order(model)) != NULL);
    const uint32_t tensors = cflow_model_tensor_count(model);
    FUZZ_REQUIRE(tensors > 0 && tensors <= bytes / FUZZ_TENSOR_BYTES);
    for (uint32_t i = 0; i < tensors; i++) {
        walk_tensor(model, i, bytes);
    }
    const char *json = NULL;
    uint64_t json_bytes;
    const int status = cflow_model_tokenizer(model, &json, &json_bytes);
    FUZZ_REQUIRE(json != NULL && (status == CFLOW_OK || json_bytes == 0));
    volatile uint64_t sink = sum_bytes((const uint8_t *)json, json_bytes);
    (void)sink;
}
