/* model_input.h - what the fuzz targets share: model files made of their inputs, and checks that stop the fuzzer. */
#ifndef FUZZ_MODEL_INPUT_H
#define FUZZ_MODEL_INPUT_H

#include "cflow.h"

#include <stddef.h>
#include <stdint.h>

/* What libFuzzer calls, and what it lends to a mutator. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
/* What AddressSanitizer asks for. */
const char *__asan_default_options(void);

/* Fields of a header, a tensor table entry and an expert table entry: FILE FORMAT of cflow.h. */
enum {
    FUZZ_HEADER_BYTES = 512,
    FUZZ_FILE_BYTES = 16,
    FUZZ_TABLE_OFFSET = 24,
    FUZZ_TENSOR_COUNT = 32,
    FUZZ_EXPERT_OFFSET = 40,
    FUZZ_EXPERT_COUNT = 48,
    FUZZ_TOKENIZER_OFFSET = 56,
    FUZZ_TOKENIZER_BYTES = 64,
    FUZZ_TOKENIZER_HASH = 72,
    FUZZ_TABLES_HASH = 80,
    FUZZ_DATA_OFFSET = 88,
    FUZZ_PARAMS = 128,
    FUZZ_NAME = 440,
    FUZZ_HEADER_HASH = 504,
    FUZZ_TENSOR_BYTES = 128,
    FUZZ_TENSOR_OFFSET = 56,
    FUZZ_TENSOR_LENGTH = 64,
    FUZZ_TENSOR_HASH = 72,
    FUZZ_EXPERT_BYTES = 32,
};

/* Bytes at the end of an input that are not of the file, but choose what is done with it. Each target says how many. */
extern const size_t FUZZ_TAIL_BYTES;

/*
 * Puts the bytes into a file without a name and gives a path to it, valid until the next call. on_disk: in a file system
 * with a device, where $TMPDIR has one; otherwise in memory. Ends the process when that fails.
 */
const char *fuzz_file(const uint8_t *data, size_t bytes, int on_disk);

/* Unsigned, little-endian, as in the file; of 4 and 8 bytes. */
uint32_t fuzz_get_u32(const uint8_t *at);
uint64_t fuzz_get_u64(const uint8_t *at);
void fuzz_put_u32(uint8_t *at, uint32_t value);
void fuzz_put_u64(uint8_t *at, uint64_t value);

/* Where the tensor table begins and how many of its entries lie in the input; 0 entries when none does. */
size_t fuzz_tensors(const uint8_t *data, size_t bytes, size_t *table_out);
size_t fuzz_experts(const uint8_t *data, size_t bytes, size_t *table_out);

/* Makes the hashes of a file right: those of header and tables; with data = 1 also those of all that the tables name. */
void fuzz_hash(uint8_t *file, size_t bytes, int data);

/* Reads every parameter, name, tensor and the tokenizer of an open model, and holds them to what cflow.h promises. */
void fuzz_walk(const cflow_model *model, size_t bytes);

/* Ends the process as a finding when a promise is broken. */
#define FUZZ_REQUIRE(condition) ((condition) ? (void)0 : fuzz_broken(#condition, __FILE__, __LINE__))
_Noreturn void fuzz_broken(const char *condition, const char *file, int line);

#endif
