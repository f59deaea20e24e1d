// What leaves the device, and what moves within it.

struct ArgmaxParams {
    uint width;
};

// The number of the greatest element of a row, the least among equals; all bits where one is not finite.
kernel void argmax(device const float    *x   [[buffer(0)]],
                   device uint           *out [[buffer(1)]],
                   constant ArgmaxParams &p   [[buffer(2)]],
                   uint row   [[threadgroup_position_in_grid]],
                   uint index [[thread_index_in_threadgroup]],
                   uint lane  [[thread_index_in_simdgroup]],
                   uint simd  [[simdgroup_index_in_threadgroup]]) {
    threadgroup float values[8];
    threadgroup uint numbers[8];
    threadgroup uint faults[8];
    x += ulong(row) * p.width;
    float most = -INFINITY;
    uint at = 0xffffffffu, fault = 0;
    for (uint i = index; i < p.width; i += 256) {
        const float v = x[i];
        if ((as_type<uint>(v) & 0x7f800000u) == 0x7f800000u) fault = 1;
        if (v > most) { most = v; at = i; }
    }
    const float best = simd_max(most);
    at = simd_min(most == best ? at : 0xffffffffu);
    fault = simd_max(fault);
    if (lane == 0) { values[simd] = best; numbers[simd] = at; faults[simd] = fault; }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (index != 0) return;
    for (uint i = 0; i < 8; i++) {
        if (values[i] > most || i == 0) { most = values[i]; at = numbers[i]; }
        else if (values[i] == most) at = min(at, numbers[i]);
        fault = max(fault, faults[i]);
    }
    out[row] = fault != 0 ? 0xffffffffu : at;
}

struct CopyParams {
    uint count;      // of sixteen bytes
};

kernel void copy(device const uint4  *from [[buffer(0)]],
                 device uint4        *to   [[buffer(1)]],
                 constant CopyParams &p    [[buffer(2)]],
                 uint i [[thread_position_in_grid]]) {
    if (i < p.count) to[i] = from[i];
}
