/* hash.h - XXH64 (Y. Collet, xxHash fast digest algorithm, specification 0.1.1), seed 0, streaming. */
#ifndef CF_HASH_H
#define CF_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct cf_xxh64 {
    uint64_t lane[4];
    uint64_t total_bytes;
    uint8_t pending[32];
    size_t pending_bytes;
} cf_xxh64;

void cf_xxh64_init(cf_xxh64 *state);
void cf_xxh64_update(cf_xxh64 *state, const void *data, size_t bytes);
uint64_t cf_xxh64_digest(const cf_xxh64 *state);
uint64_t cf_xxh64_of(const void *data, size_t bytes);

#endif
