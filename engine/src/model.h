/* model.h - an opened .cflow file: validated tables over a read-only mapping. */
#ifndef CF_MODEL_H
#define CF_MODEL_H

#include "cflow.h"

#define CF_NONE UINT32_MAX

typedef struct cf_tensor {
    uint32_t role;
    uint32_t block;  /* CF_NONE when model-wide */
    uint32_t expert; /* CF_NONE outside the bank */
    uint32_t type;
    uint32_t parts;
    uint64_t rows[3];
    uint64_t columns;
    uint64_t offset;
    uint64_t bytes;
    uint64_t hash;
    char name[48];
} cf_tensor;

typedef struct cf_expert_blob {
    uint64_t offset;
    uint64_t bytes;
    uint64_t hash;
} cf_expert_blob;

struct cflow_model {
    int fd;
    char *path;
    const uint8_t *map; /* [file_bytes] */
    uint64_t file_bytes;
    uint32_t order; /* cflow_order */
    uint64_t data_offset;
    uint32_t param[CFLOW_PARAM_COUNT];
    float rms_eps;
    float rope_base;
    char name[64];
    uint32_t tensor_count;
    cf_tensor *tensors;
    cf_expert_blob *experts;   /* [blocks * experts] */
    const cf_tensor **by_role; /* [(blocks + 1) * CFLOW_ROLE_COUNT]; row `blocks` holds the model-wide tensors */
    const cf_tensor **bank;    /* [blocks * experts * 2]: gate_up, down */
    uint64_t tokenizer_offset;
    uint64_t tokenizer_bytes;
    uint64_t tokenizer_hash;
};

/* NULL when the model has no such tensor. block = CF_NONE for model-wide roles. */
const cf_tensor *cf_model_find(const cflow_model *model, uint32_t block, uint32_t role);

static inline uint32_t cf_tensor_is_vector(const cf_tensor *tensor)
{
    return tensor->columns == 1;
}

#endif
