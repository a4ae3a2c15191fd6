/*
 * probe_loops.c - the inner loops of the roofs. They are executed for real, not through the emulated kernels of a test
 * build: what runs is asked of the CPU here, not of cflow_isa_supported().
 */
#include "probe_loops.h"

#include "cflow.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define CF_TARGET(set) __attribute__((target(set)))
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* The lines of a step of 256 bytes, `ahead` of it. An address, not a pointer: it may lie behind the data. */
static inline void prefetch_step(const uint8_t *from, unsigned ahead)
{
    for (unsigned line = 0; line < 256; line += 64) {
        __builtin_prefetch((const void *)((uintptr_t)from + ahead + line), 0, 3);
    }
}

#if defined(__x86_64__)
CF_TARGET("avx2")
static uint64_t sum_avx2(const uint8_t *data, uint64_t bytes, unsigned streams, unsigned prefetch)
{
    __m256i sums[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    for (uint64_t at = 0; at < bytes; at += 256) {
        for (unsigned s = 0; s < streams; s++) {
            const uint8_t *from = data + s * bytes + at;
            if (prefetch > 0) {
                prefetch_step(from, prefetch);
            }
            for (unsigned i = 0; i < 8; i++) {
                sums[i % 4] =
                    _mm256_add_epi64(sums[i % 4], _mm256_load_si256((const __m256i *)(const void *)(from + 32 * i)));
            }
        }
    }
    uint64_t lanes[4];
    const __m256i all = _mm256_add_epi64(_mm256_add_epi64(sums[0], sums[1]), _mm256_add_epi64(sums[2], sums[3]));
    _mm256_storeu_si256((__m256i *)(void *)lanes, all);
    return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}
#endif

#if defined(__aarch64__)
static uint64_t sum_baseline(const uint8_t *data, uint64_t bytes, unsigned streams, unsigned prefetch)
{
    uint64x2_t sums[4] = {vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0)};
    for (uint64_t at = 0; at < bytes; at += 256) {
        for (unsigned s = 0; s < streams; s++) {
            const uint8_t *from = data + s * bytes + at;
            if (prefetch > 0) {
                prefetch_step(from, prefetch);
            }
            for (unsigned i = 0; i < 16; i++) {
                sums[i % 4] = vaddq_u64(sums[i % 4], vreinterpretq_u64_u8(vld1q_u8(from + 16 * i)));
            }
        }
    }
    return vaddvq_u64(vaddq_u64(vaddq_u64(sums[0], sums[1]), vaddq_u64(sums[2], sums[3])));
}
#else
static uint64_t sum_baseline(const uint8_t *data, uint64_t bytes, unsigned streams, unsigned prefetch)
{
    uint64_t sum = 0;
    for (uint64_t at = 0; at < bytes; at += 256) {
        for (unsigned s = 0; s < streams; s++) {
            const uint8_t *from = data + s * bytes + at;
            if (prefetch > 0) {
                prefetch_step(from, prefetch);
            }
            uint64_t words[32];
            memcpy(words, from, sizeof words);
            for (unsigned i = 0; i < 32; i++) {
                sum += words[i];
            }
        }
    }
    return sum;
}
#endif

uint64_t cf_loop_read(const uint8_t *data, uint64_t bytes, unsigned streams, unsigned prefetch)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        return sum_avx2(data, bytes, streams, prefetch);
    }
#endif
    return sum_baseline(data, bytes, streams, prefetch);
}

/* ---- multiply-adds ------------------------------------------------------------------------------------------------ */

/* More than latency times throughput of any current core, and with the two factors no more than there are registers. */
#if defined(__aarch64__)
enum { FLOP_CHAINS = 24 };
#else
enum { FLOP_CHAINS = 12 };
#endif

static float multiply_add_scalar(uint64_t iterations)
{
    float chain[FLOP_CHAINS];
    for (int i = 0; i < FLOP_CHAINS; i++) {
        chain[i] = (float)i;
    }
    for (uint64_t n = 0; n < iterations; n++) {
        for (int i = 0; i < FLOP_CHAINS; i++) {
            chain[i] = chain[i] * 0.999f + 0.001f;
        }
    }
    float sum = 0.0f;
    for (int i = 0; i < FLOP_CHAINS; i++) {
        sum += chain[i];
    }
    return sum;
}

#if defined(__x86_64__)
CF_TARGET("avx2,fma") static float multiply_add_avx2(uint64_t iterations)
{
    __m256 chain[FLOP_CHAINS];
    const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
    for (int i = 0; i < FLOP_CHAINS; i++) {
        chain[i] = _mm256_set1_ps((float)i);
    }
    for (uint64_t n = 0; n < iterations; n++) {
#pragma GCC unroll 12
        for (int i = 0; i < FLOP_CHAINS; i++) {
            chain[i] = _mm256_fmadd_ps(chain[i], a, b);
        }
    }
    __m256 sum = chain[0];
    for (int i = 1; i < FLOP_CHAINS; i++) {
        sum = _mm256_add_ps(sum, chain[i]);
    }
    float lanes[8];
    _mm256_storeu_ps(lanes, sum);
    return lanes[0] + lanes[1] + lanes[2] + lanes[3] + lanes[4] + lanes[5] + lanes[6] + lanes[7];
}

CF_TARGET("avx512f") static float multiply_add_avx512(uint64_t iterations)
{
    __m512 chain[FLOP_CHAINS];
    const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
    for (int i = 0; i < FLOP_CHAINS; i++) {
        chain[i] = _mm512_set1_ps((float)i);
    }
    for (uint64_t n = 0; n < iterations; n++) {
#pragma GCC unroll 12
        for (int i = 0; i < FLOP_CHAINS; i++) {
            chain[i] = _mm512_fmadd_ps(chain[i], a, b);
        }
    }
    __m512 sum = chain[0];
    for (int i = 1; i < FLOP_CHAINS; i++) {
        sum = _mm512_add_ps(sum, chain[i]);
    }
    return _mm512_reduce_add_ps(sum);
}
#elif defined(__aarch64__)
static float multiply_add_neon(uint64_t iterations)
{
    float32x4_t chain[FLOP_CHAINS];
    const float32x4_t a = vdupq_n_f32(0.999f), b = vdupq_n_f32(0.001f);
    for (int i = 0; i < FLOP_CHAINS; i++) {
        chain[i] = vdupq_n_f32((float)i);
    }
    for (uint64_t n = 0; n < iterations; n++) {
#pragma GCC unroll 24
        for (int i = 0; i < FLOP_CHAINS; i++) {
            chain[i] = vfmaq_f32(chain[i], a, b); /* the sum is the operand that is overwritten */
        }
    }
    float32x4_t sum = chain[0];
    for (int i = 1; i < FLOP_CHAINS; i++) {
        sum = vaddq_f32(sum, chain[i]);
    }
    return vaddvq_f32(sum);
}
#endif

/* Floats of a chain; 0 when the instruction set does not run here. */
static unsigned flop_lanes(int isa)
{
    switch (isa) {
    case CFLOW_ISA_SCALAR:
        return 1;
#if defined(__x86_64__)
    case CFLOW_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 8 : 0;
    case CFLOW_ISA_AVX512:
    case CFLOW_ISA_AVX512VNNI:
        return __builtin_cpu_supports("avx512f") ? 16 : 0;
#elif defined(__aarch64__)
    case CFLOW_ISA_NEONDOT:
        return 4; /* plain NEON, which every aarch64 CPU has */
#endif
    default:
        return 0;
    }
}

uint64_t cf_loop_operations(int isa)
{
    return (uint64_t)FLOP_CHAINS * flop_lanes(isa) * 2u;
}

float cf_loop_multiply_add(int isa, uint64_t iterations)
{
    switch (isa) {
#if defined(__x86_64__)
    case CFLOW_ISA_AVX512:
    case CFLOW_ISA_AVX512VNNI:
        return multiply_add_avx512(iterations);
    case CFLOW_ISA_AVX2:
        return multiply_add_avx2(iterations);
#elif defined(__aarch64__)
    case CFLOW_ISA_NEONDOT:
        return multiply_add_neon(iterations);
#endif
    default:
        return multiply_add_scalar(iterations);
    }
}
