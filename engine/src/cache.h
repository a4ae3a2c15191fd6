/* cache.h - the cache model as the recorder feeds it. */
#ifndef CF_CACHE_H
#define CF_CACHE_H

#include "cflow.h"

#define CF_CACHE_PIECES (CFLOW_PIECE_KIND_COUNT + 1u)

/* bytes >= 1, piece < CF_CACHE_PIECES, kind < CFLOW_ACCESS_KIND_COUNT. */
void cf_cache_access(cflow_cache *cache, uint64_t address, uint64_t bytes, uint32_t piece, uint32_t kind);

#endif
