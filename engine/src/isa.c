/* isa.c - which instruction sets this CPU and operating system run. */
#include "cflow.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* __builtin_cpu_supports() checks the operating system's part (XGETBV) too, but not every compiler knows "f16c". */
static int supports_f16c(void)
{
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}

static int supports_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && supports_f16c();
}

static int supports_avx512(void)
{
#if defined(CFLOW_SIMDE)
    return supports_avx2(); /* this build runs the AVX-512 kernels on AVX2 */
#else
    return supports_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#endif
}

static int supports_avx512vnni(void)
{
#if defined(CFLOW_SIMDE)
    return supports_avx2();
#else
    return supports_avx512() && __builtin_cpu_supports("avx512vnni");
#endif
}
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

static int supports_neondot(void)
{
    const unsigned long asimddp = 1ul << 20; /* HWCAP_ASIMDDP of the kernel's interface, which old headers lack */
    return (getauxval(AT_HWCAP) & asimddp) != 0;
}
#endif

int cflow_isa_supported(int isa)
{
    switch (isa) {
    case CFLOW_ISA_SCALAR:
        return 1;
#if defined(__x86_64__)
    case CFLOW_ISA_AVX2:
        return supports_avx2() ? 1 : 0;
    case CFLOW_ISA_AVX512:
        return supports_avx512() ? 1 : 0;
    case CFLOW_ISA_AVX512VNNI:
        return supports_avx512vnni() ? 1 : 0;
#elif defined(__aarch64__) && defined(__linux__)
    case CFLOW_ISA_NEONDOT:
        return supports_neondot();
#endif
    default:
        return 0;
    }
}

int cflow_isa_default(void)
{
    int best = CFLOW_ISA_SCALAR;
    for (int isa = 0; isa < CFLOW_ISA_COUNT; isa++) {
        if (cflow_isa_supported(isa)) {
            best = isa;
        }
    }
    const char *const wanted = getenv("CFLOW_ISA");
    for (int isa = 0; wanted != NULL && isa < best; isa++) {
        if (strcmp(wanted, cflow_isa_name(isa)) == 0 && cflow_isa_supported(isa)) {
            return isa;
        }
    }
    return best;
}
