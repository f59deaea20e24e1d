// What the kernels share. Each file is compiled behind this one.
#include <metal_stdlib>
using namespace metal;

// The sum over a threadgroup of 256 threads, in every one of them: sums of the eight SIMD-groups, then of these eight
// partials. `partials` is used up: whoever wants another sum needs a barrier, or other memory.
static inline float sum_of_256(float x, threadgroup float *partials, uint lane, uint simd) {
    x = simd_sum(x);
    if (lane == 0) partials[simd] = x;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return simd_sum(lane < 8 ? partials[lane] : 0.0f);
}
