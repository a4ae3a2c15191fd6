/* random.h - SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014). */
#ifndef CF_RANDOM_H
#define CF_RANDOM_H

#include <stdint.h>

/* Output `index` of the stream that starts at `seed`: any element without the ones before it. */
static inline uint64_t cf_splitmix64(uint64_t seed, uint64_t index)
{
    uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

#endif
