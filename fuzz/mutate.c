/*
 * mutate.c - the mutator of the fuzz targets. It knows where the fields lie, changes a few, and makes the hashes right
 * again: otherwise every change would end at the first hash. Some inputs keep their wrong ones.
 */
#include "model_input.h"

#include <string.h>

typedef struct mutation {
    uint8_t *file;
    size_t bytes;     /* of the file */
    size_t max_bytes; /* that the file may grow to */
    uint64_t random;
} mutation;

/* splitmix64 (S. Vigna, public domain algorithm). */
static uint64_t draw(mutation *m)
{
    uint64_t z = m->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static size_t below(mutation *m, size_t end)
{
    return end == 0 ? 0 : (size_t)(draw(m) % end);
}

/* A value that is often at the edge of something, or near the one that is there. */
static uint64_t edge(mutation *m, uint64_t now)
{
    static const uint64_t fixed[] = {
        0,        1,        2,          3,        4,         8,        15,
        16,       17,       31,         32,       33,        48,       63,
        64,       65,       96,         127,      128,       255,      256,
        512,      511,      513,        1023,     1024,      4095,     4096,
        4097,     8192,     1u << 14,   1u << 16, 1u << 18,  1u << 20, (1u << 20) + 1,
        1u << 24, 1u << 30, UINT32_MAX, 1u << 31, INT32_MAX,
    };
    switch (below(m, 10)) {
    case 0:
        return now + 1;
    case 1:
        return now - 1;
    case 2:
        return now * 2;
    case 3:
        return now / 2;
    case 4:
        return now ^ UINT64_C(1) << below(m, 64);
    case 5:
        return now + 64 * (below(m, 9) - 4);
    case 6:
        return UINT64_MAX - fixed[below(m, sizeof fixed / sizeof fixed[0])];
    case 7:
        return UINT64_C(1) << below(m, 64);
    default:
        return fixed[below(m, sizeof fixed / sizeof fixed[0])];
    }
}

static void change_u32(mutation *m, size_t at)
{
    if (at + 4 <= m->bytes) {
        fuzz_put_u32(m->file + at, (uint32_t)edge(m, fuzz_get_u32(m->file + at)));
    }
}

static void change_u64(mutation *m, size_t at)
{
    if (at + 8 <= m->bytes) {
        fuzz_put_u64(m->file + at, edge(m, fuzz_get_u64(m->file + at)));
    }
}

/* ---- single changes ------------------------------------------------------------------------------------------------- */

static void change_param(mutation *m)
{
    change_u32(m, FUZZ_PARAMS + 4 * below(m, CFLOW_PARAM_COUNT));
}

static void change_header(mutation *m)
{
    static const uint8_t words[] = {8, 12, FUZZ_TENSOR_COUNT, 36, FUZZ_EXPERT_COUNT, 52, 96};
    static const uint8_t longs[] = {FUZZ_FILE_BYTES,       FUZZ_TABLE_OFFSET,    FUZZ_EXPERT_OFFSET,
                                    FUZZ_TOKENIZER_OFFSET, FUZZ_TOKENIZER_BYTES, FUZZ_DATA_OFFSET};
    if (below(m, 2) == 0) {
        change_u32(m, words[below(m, sizeof words)]);
    } else {
        change_u64(m, longs[below(m, sizeof longs)]);
    }
}

/* As many heads of half the size, or the other way round: every shape stays as it is. */
static void change_heads(mutation *m)
{
    uint8_t *p = m->file + FUZZ_PARAMS;
    uint32_t heads = fuzz_get_u32(p + 4 * CFLOW_PARAM_HEADS), kv = fuzz_get_u32(p + 4 * CFLOW_PARAM_KV_HEADS);
    uint32_t dim = fuzz_get_u32(p + 4 * CFLOW_PARAM_HEAD_DIM);
    if (below(m, 2) == 0) {
        heads *= 2, kv *= 2, dim /= 2;
    } else {
        heads /= 2, kv /= 2, dim *= 2;
    }
    fuzz_put_u32(p + 4 * CFLOW_PARAM_HEADS, heads);
    fuzz_put_u32(p + 4 * CFLOW_PARAM_KV_HEADS, kv);
    fuzz_put_u32(p + 4 * CFLOW_PARAM_HEAD_DIM, dim);
}

static void change_name(mutation *m)
{
    static const char *const names[] = {"\xc3\x28", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x1b[2J", "<script>", "../x",
                                        ""};
    const char *name = names[below(m, sizeof names / sizeof names[0])];
    memcpy(m->file + FUZZ_NAME + below(m, 64 - 5), name, strlen(name) + below(m, 2));
}

static void change_tensor(mutation *m)
{
    size_t table;
    const size_t count = fuzz_tensors(m->file, m->bytes, &table);
    if (count == 0) {
        return;
    }
    const size_t at = table + below(m, count) * FUZZ_TENSOR_BYTES;
    if (below(m, 2) == 0) {
        change_u32(m, at + 4 * below(m, 6));
    } else if (below(m, 8) > 0) {
        change_u64(m, at + 24 + 8 * below(m, 7));
    } else {
        m->file[at + 80 + below(m, 48)] = (uint8_t)draw(m);
    }
}

/* One entry becomes another, two change places, or one goes away. */
static void move_tensors(mutation *m)
{
    uint8_t kept[FUZZ_TENSOR_BYTES];
    size_t table;
    const size_t count = fuzz_tensors(m->file, m->bytes, &table);
    if (count == 0) {
        return;
    }
    uint8_t *a = m->file + table + below(m, count) * FUZZ_TENSOR_BYTES;
    uint8_t *b = m->file + table + below(m, count) * FUZZ_TENSOR_BYTES;
    const uint8_t *end = m->file + table + count * FUZZ_TENSOR_BYTES;
    memcpy(kept, a, sizeof kept);
    switch (below(m, 3)) {
    case 0:
        memmove(a, b, sizeof kept);
        break;
    case 1:
        memmove(a, b, sizeof kept);
        memcpy(b, kept, sizeof kept);
        break;
    default:
        memmove(a, a + FUZZ_TENSOR_BYTES, (size_t)(end - a) - FUZZ_TENSOR_BYTES);
        fuzz_put_u32(m->file + FUZZ_TENSOR_COUNT, (uint32_t)count - 1);
        break;
    }
}

static void change_expert(mutation *m)
{
    size_t table;
    const size_t count = fuzz_experts(m->file, m->bytes, &table);
    if (count > 0) {
        change_u64(m, table + below(m, count) * FUZZ_EXPERT_BYTES + 8 * below(m, 4));
    }
}

/* A number in the data: not finite, huge, tiny, or any. */
static void change_data(mutation *m)
{
    static const uint32_t floats[] = {0x7fc00000, 0x7f800000, 0xff800000, 0x7f7fffff, 0x00000001, 0x80000000, 0};
    static const uint16_t halves[] = {0x7e00, 0x7c00, 0xfc00, 0x7bff, 0x0001, 0x8000, 0};
    size_t table;
    const size_t count = fuzz_tensors(m->file, m->bytes, &table);
    if (count == 0) {
        return;
    }
    const uint8_t *entry = m->file + table + below(m, count) * FUZZ_TENSOR_BYTES;
    const uint64_t offset = fuzz_get_u64(entry + FUZZ_TENSOR_OFFSET), length = fuzz_get_u64(entry + FUZZ_TENSOR_LENGTH);
    if (offset > m->bytes || length > m->bytes - offset || length < 4) {
        return;
    }
    uint8_t *at = m->file + offset + below(m, (size_t)length / 4) * 4;
    switch (below(m, 4)) {
    case 0:
        fuzz_put_u32(at, floats[below(m, sizeof floats / sizeof floats[0])]);
        break;
    case 1: {
        const uint32_t half = halves[below(m, sizeof halves / sizeof halves[0])];
        fuzz_put_u32(at, half | half << 16);
        break;
    }
    case 2:
        fuzz_put_u32(at, (uint32_t)draw(m));
        break;
    default: {
        /* All of the tensor alike. */
        const uint32_t word = floats[below(m, sizeof floats / sizeof floats[0])];
        for (uint64_t i = 0; i + 4 <= length; i += 4) {
            fuzz_put_u32(m->file + offset + i, word);
        }
        break;
    }
    }
}

/* What libFuzzer does to bytes: with its dictionary, and with the constants that it saw comparisons with. */
static void change_front(mutation *m)
{
    const size_t end = m->bytes < 8192 ? m->bytes : 8192, begin = below(m, end);
    (void)LLVMFuzzerMutate(m->file + begin, end - begin, end - begin);
}

static void change_length(mutation *m)
{
    m->bytes = LLVMFuzzerMutate(m->file, m->bytes, m->max_bytes);
    if (m->bytes >= FUZZ_HEADER_BYTES && below(m, 4) > 0) {
        fuzz_put_u64(m->file + FUZZ_FILE_BYTES, m->bytes);
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    static void (*const changes[])(mutation *) = {
        change_param,  change_param, change_param,  change_header, change_heads, change_name,  change_tensor,
        change_tensor, move_tensors, change_expert, change_data,   change_data,  change_front, change_length,
    };
    mutation m = {.random = seed};
    if (size < FUZZ_HEADER_BYTES + FUZZ_TAIL_BYTES) {
        return LLVMFuzzerMutate(data, size, max_size);
    }
    uint8_t tail[64];
    memcpy(tail, data + size - FUZZ_TAIL_BYTES, FUZZ_TAIL_BYTES);
    m.file = data;
    m.bytes = size - FUZZ_TAIL_BYTES;
    m.max_bytes = max_size - FUZZ_TAIL_BYTES;
    if (FUZZ_TAIL_BYTES > 0 && below(&m, 2) == 0) {
        tail[below(&m, FUZZ_TAIL_BYTES)] = (uint8_t)draw(&m);
    }
    if (FUZZ_TAIL_BYTES == 0 || below(&m, 4) > 0) {
        const size_t count = 1 + below(&m, 4);
        for (size_t i = 0; i < count && m.bytes >= FUZZ_HEADER_BYTES; i++) {
            changes[below(&m, sizeof changes / sizeof changes[0])](&m);
        }
        if (below(&m, 16) > 0) {
            fuzz_hash(m.file, m.bytes, below(&m, 4) > 0);
        }
    }
    memcpy(data + m.bytes, tail, FUZZ_TAIL_BYTES);
    return m.bytes + FUZZ_TAIL_BYTES;
}
