/*
 * vector.h - elementwise float operations of the forward pass.
 *
 * Compiled once, for the baseline of the target, so that their results do not depend on the instruction set of the
 * kernels. Sums use a fixed order. n may be any size; arrays need no alignment and may be equal where noted.
 */
#ifndef CF_VECTOR_H
#define CF_VECTOR_H

#include <stddef.h>
#include <stdint.h>

/* out = a + b; out may equal a or b. */
void cf_vector_add(float *out, const float *a, const float *b, size_t n);
/* out = (a + b) / sqrt(2) */
void cf_vector_mix(float *out, const float *a, const float *b, size_t n);
/* out = gate * previous + (1 - gate) * value, with gate = sigmoid(w); previous NULL means zero */
void cf_vector_register(float *out, const float *w, const float *previous, const float *value, size_t n);
/* out = weight * in when first, else out += weight * in */
void cf_vector_accumulate(float *out, float weight, const float *in, size_t n, int first);
/* Sum of squares, in 16 interleaved partial sums. */
float cf_vector_square_sum(const float *in, size_t n);
/* out = in / sqrt(mean(in^2) + eps) * gain; returns 0 when the mean is not finite. */
int cf_vector_rmsnorm(float *out, const float *in, const float *gain, size_t n, float eps);
/* out = act(gate) * up; activation: cflow_activation. out may equal gate or up. */
void cf_vector_glu(float *out, const float *gate, const float *up, size_t n, int activation);
/* In place: e^(in - max) / sum of those. */
void cf_vector_softmax(float *values, size_t n);

#endif
