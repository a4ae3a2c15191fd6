/* test_load.c - loading: every byte arrives, every hash is checked, and each chunk lies where most of it is read. */
#define _GNU_SOURCE
#include "check.h"
#include "hash.h"
#include "load.h"
#include "session.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TENSORS = 40, DATA_OFFSET = 8192 };

static char path[] = "/tmp/cflow-load-XXXXXX";
static cf_tensor tensors[TENSORS];
static cflow_model model;
static cf_spans spans; /* all of its data */

/* A file of about 9 chunks: tensors of uneven sizes with gaps between them, in a table that is not in file order. */
static void make_file(void)
{
    uint64_t offset = DATA_OFFSET, state = 7;
    for (int i = 0; i < TENSORS; i++) {
        cf_tensor *tensor = &tensors[(i * 17 + 3) % TENSORS];
        tensor->offset = offset;
        tensor->bytes = i % 10 == 4 ? 2 * CF_CHUNK_BYTES + 4096 + 64 : (uint64_t)(1 + i * 700) * 64;
        tensor->columns = 32;
        (void)snprintf(tensor->name, sizeof tensor->name, "tensor.%d", i);
        offset += tensor->bytes + (uint64_t)(i % 3) * 64;
    }
    model.file_bytes = offset + 100; /* no whole page at the end */
    model.data_offset = DATA_OFFSET;
    model.tensor_count = TENSORS;
    model.tensors = tensors;
    model.path = path;
    model.fd = mkstemp(path);
    CHECK(model.fd >= 0);
    uint8_t *data = malloc(model.file_bytes);
    CHECK(data != NULL);
    for (uint64_t i = 0; i < model.file_bytes; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        data[i] = (uint8_t)(state >> 56);
    }
    for (int i = 0; i < TENSORS; i++) {
        tensors[i].hash = cf_xxh64_of(data + tensors[i].offset, tensors[i].bytes);
    }
    CHECK(write(model.fd, data, model.file_bytes) == (ssize_t)model.file_bytes);
    CHECK(fsync(model.fd) == 0);
    free(data);
    model.map = mmap(NULL, model.file_bytes, PROT_READ, MAP_SHARED, model.fd, 0);
    CHECK(model.map != MAP_FAILED);
    CHECK(cf_spans_create(&model, 1, NULL, &spans) == CFLOW_OK);
}

static void empty_page_cache(void)
{
    /* Pages that are mapped stay. */
    CHECK(munmap((void *)(uintptr_t)model.map, model.file_bytes) == 0);
    CHECK(posix_fadvise(model.fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    model.map = mmap(NULL, model.file_bytes, PROT_READ, MAP_SHARED, model.fd, 0);
    CHECK(model.map != MAP_FAILED);
}

static cf_pool *pool_of_nodes(int threads, int per_node)
{
    cf_cpu cpus[CF_MAX_THREADS];
    for (int i = 0; i < threads; i++) {
        cpus[i] = (cf_cpu){.cpu = -1, .node = 10 + 3 * (i / per_node)};
    }
    cf_pool *pool = NULL;
    CHECK(cf_pool_create_at(threads, cpus, 0, &pool) == CFLOW_OK);
    return pool;
}

static int load_into(cf_memory *memory, cf_load *load, const cf_pool *pool)
{
    CHECK(cf_memory_map(memory, load->spans->bytes, 1, "test", NULL) == CFLOW_OK);
    CHECK((uintptr_t)memory->data % CF_CHUNK_BYTES == 0);
    load->model = &model;
    load->target = memory->data;
    return cf_load_run(load, pool);
}

static void test_every_byte(int threads, int per_node, int by_node)
{
    cf_pool *pool = pool_of_nodes(threads, per_node);
    cf_worker_nodes nodes;
    cf_worker_nodes_of(pool, &nodes);
    CHECK(nodes.count == (uint32_t)((threads + per_node - 1) / per_node));
    CHECK(nodes.of[threads - 1] == nodes.count - 1);
    uint32_t chunk_node[64];
    const uint64_t chunks = cf_load_chunks(&spans);
    CHECK(chunks > 8 && chunks <= 64);
    for (uint64_t i = 0; i < chunks; i++) {
        chunk_node[i] = (uint32_t)(i * 5 % nodes.count);
    }
    for (int cold = 0; cold < 2; cold++) {
        if (cold) {
            empty_page_cache();
        }
        cf_memory memory;
        cf_load load = {.spans = &spans, .chunk_node = by_node ? chunk_node : NULL, .verify = 1};
        CHECK(load_into(&memory, &load, pool) == CFLOW_OK);
        CHECK(load.direct_bytes <= model.file_bytes - model.data_offset);
        CHECK(memcmp(memory.data, model.map + model.data_offset, model.file_bytes - model.data_offset) == 0);
        cf_memory_unmap(&memory);
    }
    cflow_pool_destroy(pool);
}

/* Every seventh tensor and a run of them are experts: the rest lies side by side, each at its place, whole. */
static void test_without_experts(int threads)
{
    for (int i = 0; i < TENSORS; i++) {
        tensors[i].expert = i % 7 == 0 || (i > 15 && i < 22) ? 0 : CF_NONE;
    }
    cf_pool *pool = pool_of_nodes(threads, threads);
    cf_spans some;
    CHECK(cf_spans_create(&model, 0, NULL, &some) == CFLOW_OK);
    CHECK(some.count > 3 && some.bytes < spans.bytes);
    for (int cold = 0; cold < 2; cold++) {
        if (cold) {
            empty_page_cache();
        }
        cf_memory memory;
        cf_load load = {.spans = &some, .verify = 1};
        CHECK(load_into(&memory, &load, pool) == CFLOW_OK);
        for (int i = 0; i < TENSORS; i++) {
            const cf_tensor *tensor = &tensors[i];
            if (!cf_spans_hold(&some, tensor)) {
                continue;
            }
            const uint64_t at = cf_spans_position(&some, tensor);
            CHECK(at % CF_SPAN_ALIGN == tensor->offset % CF_SPAN_ALIGN && at + tensor->bytes <= some.bytes);
            CHECK(memcmp((uint8_t *)memory.data + at, model.map + tensor->offset, tensor->bytes) == 0);
        }
        cf_memory_unmap(&memory);
    }
    cf_spans_free(&some);
    cflow_pool_destroy(pool);
    for (int i = 0; i < TENSORS; i++) {
        tensors[i].expert = CF_NONE;
    }
}

static void test_wrong_hash(void)
{
    cf_pool *pool = pool_of_nodes(3, 2);
    for (int i = 0; i < TENSORS; i += 13) {
        cf_memory memory;
        cf_load load = {.spans = &spans, .verify = 1};
        tensors[i].hash ^= 1;
        CHECK(load_into(&memory, &load, pool) == CFLOW_ERR_CHECKSUM);
        CHECK(strstr(cflow_last_error(), tensors[i].name) != NULL);
        cf_memory_unmap(&memory);
        load.verify = 0;
        CHECK(load_into(&memory, &load, pool) == CFLOW_OK);
        cf_memory_unmap(&memory);
        tensors[i].hash ^= 1;
    }
    cflow_pool_destroy(pool);
}

static void test_shortened_file(void)
{
    cf_pool *pool = pool_of_nodes(2, 2);
    cf_memory memory;
    cf_load load = {.spans = &spans, .verify = 1};
    CHECK(ftruncate(model.fd, (off_t)(model.file_bytes - 200000)) == 0);
    CHECK(load_into(&memory, &load, pool) == CFLOW_ERR_IO);
    CHECK(strstr(cflow_last_error(), "the file ended") != NULL);
    cf_memory_unmap(&memory);
    cflow_pool_destroy(pool);
}

/* One matrix of 64 MiB and a smaller one behind it, split over 4 workers on 2 nodes. */
static void test_chunk_nodes(void)
{
    static uint64_t split[2][5];
    cf_tensor big = {.type = CFLOW_TYPE_Q8_0, .parts = 1, .rows = {8192}, .columns = 7680};
    cf_tensor after = {.type = CFLOW_TYPE_Q8_0, .parts = 1, .rows = {2048}, .columns = 4096};
    cf_op ops[2] = {{.kind = CF_OP_PIECE, .tensor = &big, .stream = CFLOW_STREAM_DENSE},
                    {.kind = CF_OP_PIECE, .tensor = &after, .stream = CFLOW_STREAM_DENSE}};
    cf_tensor *of[2] = {&big, &after};
    uint64_t offset = 4096;
    for (int i = 0; i < 2; i++) {
        CHECK(cf_tiles_describe((int)of[i]->type, 1, of[i]->rows, of[i]->columns, 128, 256, &ops[i].tiles) == CFLOW_OK);
        CHECK(cflow_tiles_bytes((int)of[i]->type, of[i]->rows[0], of[i]->columns, 128, 256, &of[i]->bytes) == CFLOW_OK);
        of[i]->offset = offset;
        offset += of[i]->bytes;
        ops[i].units = of[i]->rows[0] / CF_GROUP_ROWS;
        ops[i].split = split[i];
        for (uint64_t thread = 0; thread < 5; thread++) {
            /* The second is read by the second node alone. */
            split[i][thread] = i == 0 || thread > 2 ? ops[i].units * (i == 0 ? thread : 2 * (thread - 2)) / 4 : 0;
        }
    }
    /* Experts behind them, which any worker may read. */
    const uint64_t expert_bytes = 7 * CF_CHUNK_BYTES;
    const cflow_model fake = {.file_bytes = offset + expert_bytes, .data_offset = 4096};
    uint32_t pieces[2] = {0, 1};
    const cf_plan plan = {.model = &fake, .options = {.threads = 4}, .ops = ops, .pieces = pieces, .piece_count = 2};
    const cf_worker_nodes nodes = {.count = 2, .of = {0, 0, 1, 1}};
    uint32_t chunk_node[256];
    cf_span span = {.offset = 4096, .bytes = offset + expert_bytes - 4096};
    const cf_spans whole = {.experts = 1, .bytes = span.bytes, .count = 1, .span = &span};
    const uint64_t chunks = cf_load_chunks(&whole);
    CHECK(chunks < 256);
    CHECK(cf_residency_chunk_nodes(&plan, &whole, &nodes, chunk_node) == CFLOW_OK);
    const uint64_t middle = big.bytes / 2, matrices = big.bytes + after.bytes;
    uint32_t dealt[2] = {0};
    for (uint64_t i = 0; i < chunks; i++) {
        const uint64_t begin = i * CF_CHUNK_BYTES, end = begin + CF_CHUNK_BYTES;
        if (end <= middle) {
            CHECK(chunk_node[i] == 0);
        } else if (begin >= middle && end <= matrices) {
            CHECK(chunk_node[i] == 1);
        } else if (begin >= matrices) {
            dealt[chunk_node[i]]++;
        }
    }
    CHECK(dealt[0] >= 3 && dealt[1] >= 3);
}

static void test_whole_pages(void)
{
    int huge;
    const size_t page = cf_page_bytes();
    CHECK(page >= 4096 && (page & (page - 1)) == 0);
    CHECK(cf_memory_whole_pages(1, &huge) == page && !huge);
    CHECK(cf_memory_whole_pages(page + 1, &huge) == 2 * page && !huge);
    CHECK(cf_memory_whole_pages(1 << 20, &huge) == 2 << 20 && huge);
    CHECK(cf_memory_whole_pages((2 << 20) + 1, &huge) == 4 << 20 && huge);
}

int main(void)
{
    make_file();
    test_every_byte(1, 1, 0);
    test_every_byte(2, 2, 0);
    test_every_byte(2, 1, 1);
    test_every_byte(7, 3, 1);
    test_every_byte(64, 16, 1);
    test_every_byte(64, 64, 0);
    test_without_experts(1);
    test_without_experts(5);
    test_wrong_hash();
    test_shortened_file();
    test_chunk_nodes();
    test_whole_pages();
    CHECK(unlink(path) == 0);
    return check_summary("test_load");
}
