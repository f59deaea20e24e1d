#include <metal_stdlib>
using namespace metal;

struct Params { uint n; };

kernel void right(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], constant Params &p [[buffer(2)]],
                  uint t [[thread_position_in_threadgroup]]) {
    threadgroup float shared[64];
    shared[t] = x[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[t] = shared[63 - t];
}

kernel void missing_barrier(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], constant Params &p [[buffer(2)]],
                            uint t [[thread_position_in_threadgroup]]) {
    threadgroup float shared[64];
    shared[t] = x[t];
    y[t] = shared[63 - t];
}

// The reads of one round and the writes of the next have no barrier between them.
kernel void race(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], constant Params &p [[buffer(2)]],
                 uint t [[thread_position_in_threadgroup]]) {
    threadgroup float shared[64];
    float sum = 0;
    for (uint round = 0; round < 4; round++) {
        shared[t] = x[t] * float(round + 1);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        sum += shared[(t + 17) % 64];
    }
    y[t] = sum;
}

kernel void unwritten(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], constant Params &p [[buffer(2)]],
                      uint t [[thread_position_in_threadgroup]]) {
    threadgroup float shared[65];
    shared[t] = x[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[t] = shared[t + 1];
}

kernel void divergent_sum(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], constant Params &p [[buffer(2)]],
                          uint t [[thread_position_in_threadgroup]]) {
    float s;
    if (t % 2) {
        s = simd_sum(x[t]);
    } else {
        s = simd_max(x[t]);
    }
    y[t] = s;
}

kernel void divergent_barrier(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], constant Params &p [[buffer(2)]],
                              uint t [[thread_position_in_threadgroup]]) {
    if (t < 32) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
    } else {
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    y[t] = x[t];
}

kernel void early_return(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], constant Params &p [[buffer(2)]],
                         uint t [[thread_position_in_threadgroup]]) {
    if (t > 40) return;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[t] = x[t];
}

kernel void reads_behind(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], constant Params &p [[buffer(2)]],
                         uint t [[thread_position_in_threadgroup]]) {
    y[t] = x[t + 1];
}

kernel void writes_behind(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], constant Params &p [[buffer(2)]],
                          uint t [[thread_position_in_threadgroup]]) {
    y[t + 1] = x[t];
}

kernel void writes_before(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], constant Params &p [[buffer(2)]],
                          uint t [[thread_position_in_threadgroup]]) {
    y[int(t) - 1] = x[t];
}

kernel void too_much(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], constant Params &p [[buffer(2)]],
                     uint t [[thread_position_in_threadgroup]]) {
    threadgroup float a[4096];
    threadgroup float b[4097];
    a[t] = x[t];
    b[t] = x[t];
    y[t] = a[t] + b[t];
}
