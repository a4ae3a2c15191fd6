/*
 * record.h - how the kernels load and store. In libcflow the macros are the plain loads and stores. libcflow_record is
 * the same sources compiled once more with CFLOW_RECORD: there each access is first passed to cf_record(). So what is
 * recorded is what the kernels' own loops do, and the kernels of libcflow hold no trace of it.
 *
 * load(pointer) reads `bytes` bytes, store(pointer, value) writes them; pointer is an expression without side effects.
 */
#ifndef CF_RECORD_H
#define CF_RECORD_H

#if defined(CFLOW_RECORD)
#include "cflow.h"

/* One access of a kernel. */
void cf_record(const void *pointer, size_t bytes, int kind);

/* The piece that this thread works on from now on: a cflow_piece_kind, or CFLOW_PIECE_KIND_COUNT for none. */
void cf_record_piece(uint32_t piece);

#define CF_RECORDED(load, pointer, bytes, kind) (cf_record(pointer, bytes, kind), load(pointer))
#define CF_LOAD_WEIGHT(load, pointer, bytes) CF_RECORDED(load, pointer, bytes, CFLOW_ACCESS_WEIGHT)
#define CF_LOAD_SCALE(load, pointer, bytes) CF_RECORDED(load, pointer, bytes, CFLOW_ACCESS_SCALE)
#define CF_LOAD_ACT(load, pointer, bytes) CF_RECORDED(load, pointer, bytes, CFLOW_ACCESS_ACTIVATION)
#define CF_LOAD_OUTPUT(load, pointer, bytes) CF_RECORDED(load, pointer, bytes, CFLOW_ACCESS_OUTPUT_LOAD)
#define CF_STORE_OUTPUT(store, pointer, value, bytes)                                                                  \
    (cf_record(pointer, bytes, CFLOW_ACCESS_OUTPUT_STORE), store(pointer, value))
#define CF_RECORD_PIECE(piece) cf_record_piece(piece)
#else
#define CF_LOAD_WEIGHT(load, pointer, bytes) load(pointer)
#define CF_LOAD_SCALE(load, pointer, bytes) load(pointer)
#define CF_LOAD_ACT(load, pointer, bytes) load(pointer)
#define CF_LOAD_OUTPUT(load, pointer, bytes) load(pointer)
#define CF_STORE_OUTPUT(store, pointer, value, bytes) store(pointer, value)
#define CF_RECORD_PIECE(piece) ((void)(piece))
#endif

#endif
