/* spans.h - which parts of a file are loaded into memory, and where each lies there. */
#ifndef CF_SPANS_H
#define CF_SPANS_H

#include "model.h"

/* Places in the file and in memory agree modulo this, so that reads past the page cache go straight into place. */
enum { CF_SPAN_ALIGN = 4096 };

typedef struct cf_span {
    uint64_t offset;   /* in the file, a multiple of CF_SPAN_ALIGN */
    uint64_t position; /* in memory, likewise */
    uint64_t bytes;
} cf_span;

typedef struct cf_spans {
    int experts; /* 1 = the expert bank is among them */
    const cf_tensor *tensors;
    const uint8_t *left_out; /* [tensor_count] 1 = not among them either; NULL = none */
    uint64_t bytes;          /* of memory */
    uint32_t count;
    cf_span *span; /* [count], ascending in both places */
} cf_spans;

/*
 * experts = 1: all data, in one span as they lie in the file; 0: the tensors outside the bank, side by side, wherever the
 * file has them, without those that left_out marks (NULL: none; it outlives the spans). Errors: MEMORY.
 */
int cf_spans_create(const cflow_model *model, int experts, const uint8_t *left_out, cf_spans *spans);
void cf_spans_free(cf_spans *spans);

static inline int cf_spans_hold(const cf_spans *spans, const cf_tensor *tensor)
{
    return spans->experts ||
           (tensor->expert == CF_NONE && (spans->left_out == NULL || !spans->left_out[tensor - spans->tensors]));
}

/* Where in memory a tensor begins that the spans hold. */
uint64_t cf_spans_position(const cf_spans *spans, const cf_tensor *tensor);
/* The first span that ends after `position`; count when none does. */
uint32_t cf_spans_after(const cf_spans *spans, uint64_t position);

#endif
