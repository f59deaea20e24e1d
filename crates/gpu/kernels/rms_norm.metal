// Root-mean-square norms of a batch of rows (Zhang and Sennrich 2019): a threadgroup of 256 for each row.

struct RmsNormParams {
    uint width;               // elements of a row
    uint eps_bits;            // of the number added to the mean square
    uint source_stride;       // elements from row to row
    uint destination_stride;
};

static inline float rms_scale(float squares, constant RmsNormParams &p, threadgroup float *partials, uint lane, uint simd) {
    float sum = sum_of_256(squares, partials, lane, simd);
    return 1.0f / precise::sqrt(sum / float(p.width) + as_type<float>(p.eps_bits));
}

// destination = source / sqrt(mean(source^2) + eps) * weight. Both may be the same memory.
kernel void rms_norm(device const float       *source      [[buffer(0)]],
                     device const float       *weight      [[buffer(1)]],
                     device float             *destination [[buffer(2)]],
                     constant RmsNormParams   &p           [[buffer(3)]],
                     uint row   [[threadgroup_position_in_grid]],
                     uint index [[thread_index_in_threadgroup]],
                     uint lane  [[thread_index_in_simdgroup]],
                     uint simd  [[simdgroup_index_in_threadgroup]]) {
    threadgroup float partials[8];
    source += ulong(row) * p.source_stride;
    destination += ulong(row) * p.destination_stride;
    float squares = 0.0f;
    for (uint i = index; i < p.width; i += 256) squares = fma(source[i], source[i], squares);
    const float scale = rms_scale(squares, p, partials, lane, simd);
    for (uint i = index; i < p.width; i += 256) destination[i] = source[i] * scale * weight[i];
}

// sum = residual + source, then destination = the norm of the sum. The sum may be written where the residual was read.
kernel void add_rms_norm(device const float       *source      [[buffer(0)]],
                         device const float       *residual    [[buffer(1)]],
                         device const float       *weight      [[buffer(2)]],
                         device float             *sum         [[buffer(3)]],
                         device float             *destination [[buffer(4)]],
                         constant RmsNormParams   &p           [[buffer(5)]],
                         uint row   [[threadgroup_position_in_grid]],
                         uint index [[thread_index_in_threadgroup]],
                         uint lane  [[thread_index_in_simdgroup]],
                         uint simd  [[simdgroup_index_in_threadgroup]]) {
    threadgroup float partials[8];
    source += ulong(row) * p.source_stride;
    residual += ulong(row) * p.source_stride;
    sum += ulong(row) * p.source_stride;
    destination += ulong(row) * p.destination_stride;
    float squares = 0.0f;
    for (uint i = index; i < p.width; i += 256) {
        const float x = residual[i] + source[i];
        sum[i] = x;
        squares = fma(x, x, squares);
    }
    const float scale = rms_scale(squares, p, partials, lane, simd);
    // A thread reads what it wrote itself.
    for (uint i = index; i < p.width; i += 256) destination[i] = sum[i] * scale * weight[i];
}
