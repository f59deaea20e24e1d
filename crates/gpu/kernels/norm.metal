// Norms of groups of a row's elements, with or without their mean taken away: a threadgroup of 256 for each group.

struct GroupNormParams {
    uint group;       // elements
    uint per_row;     // groups of a row
    uint centred;     // whether the mean is taken away (Ba et al. 2016, arXiv:1607.06450)
    uint weight_len;  // 0: none; shorter than a row where all groups share it
    uint bias;        // whether there is one, as long as the weight
    uint eps_bits;    // of the number added to the mean square or the variance
};

// The result may lie where x does.
kernel void group_norm(device const float       *x      [[buffer(0)]],
                       device const float       *weight [[buffer(1)]],
                       device const float       *bias   [[buffer(2)]],
                       device float             *out    [[buffer(3)]],
                       constant GroupNormParams &p      [[buffer(4)]],
                       uint at    [[threadgroup_position_in_grid]],
                       uint index [[thread_index_in_threadgroup]],
                       uint lane  [[thread_index_in_simdgroup]],
                       uint simd  [[simdgroup_index_in_threadgroup]]) {
    threadgroup float first[8];
    threadgroup float second[8];
    x += ulong(at) * p.group;
    out += ulong(at) * p.group;
    float mean = 0.0f;
    if (p.centred != 0) {
        float sum = 0.0f;
        for (uint i = index; i < p.group; i += 256) sum += x[i];
        mean = sum_of_256(sum, first, lane, simd) / float(p.group);
    }
    float squares = 0.0f;
    for (uint i = index; i < p.group; i += 256) squares = fma(x[i] - mean, x[i] - mean, squares);
    const float variance = sum_of_256(squares, second, lane, simd) / float(p.group);
    const float scale = 1.0f / precise::sqrt(variance + as_type<float>(p.eps_bits));
    for (uint i = index; i < p.group; i += 256) {
        const uint w = p.weight_len != 0 ? (at % p.per_row * p.group + i) % p.weight_len : 0;
        float v = (x[i] - mean) * scale;
        if (p.weight_len != 0) v *= weight[w];
        if (p.bias != 0) v += bias[w];
        out[i] = v;
    }
}
