#include "spans.h"

#include "error.h"

#include <stdlib.h>

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + CF_SPAN_ALIGN - 1) / CF_SPAN_ALIGN * CF_SPAN_ALIGN;
}

static int compare_offsets(const void *a, const void *b)
{
    const cf_tensor *left = *(const cf_tensor *const *)a, *right = *(const cf_tensor *const *)b;
    return (left->offset > right->offset) - (left->offset < right->offset);
}

/* sorted: [count] tensors in file order. Those whose pages touch share a span. */
static void join(cf_spans *spans, const cf_tensor *const *sorted, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t begin = sorted[i]->offset / CF_SPAN_ALIGN * CF_SPAN_ALIGN;
        const uint64_t end = sorted[i]->offset + sorted[i]->bytes;
        cf_span *last = spans->count == 0 ? NULL : &spans->span[spans->count - 1];
        if (last == NULL || begin > round_up(last->offset + last->bytes)) {
            last = &spans->span[spans->count++];
            *last = (cf_span){.offset = begin, .position = round_up(spans->bytes)};
        }
        last->bytes = end - last->offset;
        spans->bytes = last->position + last->bytes;
    }
}

int cf_spans_create(const cflow_model *model, int experts, const uint8_t *left_out, cf_spans *spans)
{
    *spans = (cf_spans){.experts = experts, .tensors = model->tensors, .left_out = left_out};
    const uint32_t most = experts ? 1 : model->tensor_count;
    spans->span = malloc(most * sizeof *spans->span);
    const cf_tensor **sorted = malloc(model->tensor_count * sizeof *sorted);
    if (spans->span == NULL || sorted == NULL) {
        free((void *)sorted);
        cf_spans_free(spans);
        return cf_fail(CFLOW_ERR_MEMORY, "%s: out of memory for the places of its weights", model->path);
    }
    if (experts) {
        spans->bytes = model->file_bytes - model->data_offset;
        spans->span[spans->count++] = (cf_span){.offset = model->data_offset, .bytes = spans->bytes};
    } else {
        uint32_t count = 0;
        for (uint32_t i = 0; i < model->tensor_count; i++) {
            if (cf_spans_hold(spans, &model->tensors[i])) {
                sorted[count++] = &model->tensors[i];
            }
        }
        qsort((void *)sorted, count, sizeof *sorted, compare_offsets);
        join(spans, sorted, count);
    }
    free((void *)sorted);
    return CFLOW_OK;
}

void cf_spans_free(cf_spans *spans)
{
    free(spans->span);
    *spans = (cf_spans){0};
}

uint64_t cf_spans_position(const cf_spans *spans, const cf_tensor *tensor)
{
    uint32_t low = 0, high = spans->count;
    /* The last span that does not begin behind the tensor. */
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (spans->span[middle].offset <= tensor->offset) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return spans->span[low].position + (tensor->offset - spans->span[low].offset);
}

uint32_t cf_spans_after(const cf_spans *spans, uint64_t position)
{
    uint32_t low = 0, high = spans->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (spans->span[middle].position + spans->span[middle].bytes > position) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}
