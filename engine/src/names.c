/* names.c - names of weight types and instruction sets. */
#include "cflow.h"

const char *cflow_type_name(int type)
{
    static const char *const names[CFLOW_TYPE_COUNT] = {"f32", "f16", "q4_0", "q4_1", "q8_0"};
    return type >= 0 && type < CFLOW_TYPE_COUNT ? names[type] : NULL;
}

const char *cflow_isa_name(int isa)
{
    static const char *const names[CFLOW_ISA_COUNT] = {"scalar", "avx2", "avx512", "avx512vnni", "neondot"};
    return isa >= 0 && isa < CFLOW_ISA_COUNT ? names[isa] : NULL;
}
