// Attention over a paged cache, which blocks of 32 positions make up. Of a block and head the keys lie
// [dim / 8][32 positions][8] and the values [32 positions][dim], both padded to eights with zeros.
//
// A threadgroup of 256 has a span of 256 positions, which begin at multiples of that, and up to four query heads that share a
// key head. It leaves the greatest score, the sum of exponentials and the weighed sum of values; a second kernel puts the spans
// of a row together, in order. What a row gets so depends on its position and on what the cache has, and on nothing else.

struct SeenParams {
    uint causal;
    uint window;  // 0: none
};

struct KvParams {
    uint heads;
    uint key_dim, value_dim;  // elements of a head
    uint rows;
};

struct AttendParams {
    SeenParams seen;
    uint heads, kv_heads;
    uint key_dim, value_dim;
    uint first_row;  // of the step, for the first of the grid
    uint spans;      // that partial results have room for
    float scale;
    float softcap;   // 0: none
    uint alibi;      // whether slopes count
};

struct MergeParams {
    SeenParams seen;
    uint heads, value_dim, first_row, spans;
    uint sinks;  // whether there are some
};

// The positions that a row sees: from .x up to .y.
static inline uint2 seen_by(constant SeenParams &s, uint position, uint length) {
    uint2 range;
    if (s.causal != 0) {
        range.y = position + 1;
        range.x = s.window != 0 && position + 1 > s.window ? position + 1 - s.window : 0;
    } else {
        const uint reach = s.window / 2;
        range.x = s.window != 0 && position > reach ? position - reach : 0;
        range.y = s.window != 0 ? min(length, position + reach + 1) : length;
    }
    return range;
}

static inline uint eights(uint dim) { return (dim + 7) / 8; }

static inline void load_8(device const half *p, thread float4 &a, thread float4 &b) {
    const uint4 u = *(device const uint4 *)p;
    const half2 x = as_type<half2>(u[0]), y = as_type<half2>(u[1]), z = as_type<half2>(u[2]), w = as_type<half2>(u[3]);
    a = float4(float(x[0]), float(x[1]), float(y[0]), float(y[1]));
    b = float4(float(z[0]), float(z[1]), float(w[0]), float(w[1]));
}

static inline void load_8(device const float *p, thread float4 &a, thread float4 &b) {
    a = *(device const float4 *)p;
    b = *(device const float4 *)(p + 4);
}

static inline float4 load_4(device const half *p) {
    const uint2 u = *(device const uint2 *)p;
    const half2 x = as_type<half2>(u[0]), y = as_type<half2>(u[1]);
    return float4(float(x[0]), float(x[1]), float(y[0]), float(y[1]));
}

static inline float4 load_4(device const float *p) { return *(device const float4 *)p; }

// Stores keys and values, eight elements a thread.
template <class T>
kernel void kv_write(device const float *k         [[buffer(0)]],
                     device const float *v         [[buffer(1)]],
                     device T           *keys      [[buffer(2)]],
                     device T           *values    [[buffer(3)]],
                     device const uint  *positions [[buffer(4)]],
                     device const uint  *starts    [[buffer(5)]],
                     device const uint  *table     [[buffer(6)]],
                     constant KvParams  &p         [[buffer(7)]],
                     uint i [[thread_position_in_grid]]) {
    const uint key_parts = eights(p.key_dim), value_parts = eights(p.value_dim), parts = key_parts + value_parts;
    const uint row = i / (parts * p.heads), head = i / parts % p.heads, part = i % parts;
    if (row >= p.rows) return;
    const uint position = positions[row], block = table[starts[row] + position / 32], slot = position % 32;
    const ulong at = ulong(block) * p.heads + head;
    const bool is_key = part < key_parts;
    const uint c = is_key ? part : part - key_parts, dim = is_key ? p.key_dim : p.value_dim;
    device const float *from = (is_key ? k : v) + (ulong(row) * p.heads + head) * dim;
    device T *to = is_key ? keys + (at * key_parts + c) * 256 + slot * 8 : values + (at * 32 + slot) * value_parts * 8 + c * 8;
#pragma unroll
    for (uint e = 0; e < 8; e++) to[e] = c * 8 + e < dim ? T(from[c * 8 + e]) : T(0.0f);
}

template [[host_name("kv_write_f16")]] kernel decltype(kv_write<half>) kv_write<half>;
template [[host_name("kv_write_f32")]] kernel decltype(kv_write<float>) kv_write<float>;

template <class T>
kernel void attend(device const float    *q         [[buffer(0)]],
                   device const T        *keys      [[buffer(1)]],
                   device const T        *values    [[buffer(2)]],
                   device const uint     *positions [[buffer(3)]],
                   device const uint     *lengths   [[buffer(4)]],
                   device const uint     *starts    [[buffer(5)]],
                   device const uint     *table     [[buffer(6)]],
                   device const float    *slopes    [[buffer(7)]],
                   device float          *partial   [[buffer(8)]],
                   constant AttendParams &p         [[buffer(9)]],
                   uint3 group [[threadgroup_position_in_grid]],
                   uint index  [[thread_index_in_threadgroup]],
                   uint lane   [[thread_index_in_simdgroup]],
                   uint simd   [[simdgroup_index_in_threadgroup]]) {
    constexpr uint H = 4, DIM = 512;
    threadgroup float4 queries[H * DIM / 4];
    threadgroup float weights[H][256];
    threadgroup float4 results[H][8][32];
    threadgroup float partials[H][8];
    const uint row = p.first_row + group.z, position = positions[row], base = group.x * 256;
    const uint2 seen = seen_by(p.seen, position, lengths[row]);
    if (base >= seen.y || base + 256 <= seen.x) return;
    const uint shared = p.heads / p.kv_heads, batches = (shared + H - 1) / H;
    const uint kv_head = group.y / batches, first = kv_head * shared + group.y % batches * H;
    const uint count = min(H, (kv_head + 1) * shared - first);
    const uint key_parts = eights(p.key_dim), value_dim = eights(p.value_dim) * 8;
    table += starts[row];

    threadgroup float *queries_flat = (threadgroup float *)queries;
    for (uint i = index; i < H * key_parts * 8; i += 256) {
        const uint h = i / (key_parts * 8), d = i % (key_parts * 8);
        const bool there = h < count && d < p.key_dim;
        queries_flat[i] = there ? q[(ulong(row) * p.heads + first + h) * p.key_dim + d] : 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    const uint at = base + index;
    float score[H] = {};
    const bool sees = at >= seen.x && at < seen.y;
    if (sees) {
        device const T *key = keys + (ulong(table[at / 32]) * p.kv_heads + kv_head) * key_parts * 256 + at % 32 * 8;
        for (uint c = 0; c < key_parts; c++) {
            float4 a, b;
            load_8(key + c * 256, a, b);
#pragma unroll
            for (uint h = 0; h < H; h++) {
                const float4 x = queries[(h * key_parts + c) * 2], y = queries[(h * key_parts + c) * 2 + 1];
#pragma unroll
                for (uint e = 0; e < 4; e++) score[h] = fma(a[e], x[e], score[h]);
#pragma unroll
                for (uint e = 0; e < 4; e++) score[h] = fma(b[e], y[e], score[h]);
            }
        }
    }
    const float distance = float(position > at ? position - at : at - position);
#pragma unroll
    for (uint h = 0; h < H; h++) {
        float s = score[h] * p.scale;
        if (p.softcap != 0.0f) s = p.softcap * precise::tanh(s / p.softcap);
        if (p.alibi != 0) s -= slopes[min(first + h, p.heads - 1)] * distance;
        score[h] = sees ? s : -INFINITY;
        const float greatest = simd_max(score[h]);
        if (lane == 0) partials[h][simd] = greatest;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float greatest[H], sum[H];
#pragma unroll
    for (uint h = 0; h < H; h++) {
        greatest[h] = partials[h][0];
        for (uint i = 1; i < 8; i++) greatest[h] = max(greatest[h], partials[h][i]);
        const float weight = sees ? precise::exp(score[h] - greatest[h]) : 0.0f;
        weights[h][index] = weight;
        sum[h] = simd_sum(weight);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
    for (uint h = 0; h < H; h++)
        if (lane == 0) partials[h][simd] = sum[h];
    threadgroup_barrier(mem_flags::mem_threadgroup);

    // A SIMD-group has the positions of a block, a lane four elements.
    const uint begin = base + simd * 32;
    const uint from = max(begin, seen.x), to = min(begin + 32, seen.y);
    for (uint d0 = 0; d0 < value_dim; d0 += 128) {
        const uint d = d0 + lane * 4;
        float4 result[H] = {};
        if (from < to && d < value_dim) {
            device const T *value = values + (ulong(table[begin / 32]) * p.kv_heads + kv_head) * 32 * value_dim + d;
            for (uint j = from; j < to; j++) {
                const float4 v = load_4(value + (j - begin) * value_dim);
#pragma unroll
                for (uint h = 0; h < H; h++) result[h] = fma(float4(weights[h][j - base]), v, result[h]);
            }
        }
#pragma unroll
        for (uint h = 0; h < H; h++) results[h][simd][lane] = result[h];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (simd < count && d < value_dim) {
            float4 r = results[simd][0][lane];
            for (uint i = 1; i < 8; i++) r += results[simd][i][lane];
            device float *out = partial + ((ulong(group.z) * p.heads + first + simd) * p.spans + group.x) * (value_dim + 2);
#pragma unroll
            for (uint e = 0; e < 4; e++) out[2 + d + e] = r[e];
            if (d == 0) {
                float all = partials[simd][0];
                for (uint i = 1; i < 8; i++) all += partials[simd][i];
                float most = greatest[0];
#pragma unroll
                for (uint h = 1; h < H; h++) most = h == simd ? greatest[h] : most;
                out[0] = most;
                out[1] = all;
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}

template [[host_name("attend_f16")]] kernel decltype(attend<half>) attend<half>;
template [[host_name("attend_f32")]] kernel decltype(attend<float>) attend<float>;

// The spans of a row and head put together, by a threadgroup of 128.
kernel void attend_merge(device const float   *partial   [[buffer(0)]],
                         device const uint    *positions [[buffer(1)]],
                         device const uint    *lengths   [[buffer(2)]],
                         device const float   *sinks     [[buffer(3)]],
                         device float         *out       [[buffer(4)]],
                         constant MergeParams &p         [[buffer(5)]],
                         uint2 group [[threadgroup_position_in_grid]],
                         uint index  [[thread_index_in_threadgroup]]) {
    const uint row = p.first_row + group.y, head = group.x;
    const uint2 seen = seen_by(p.seen, positions[row], lengths[row]);
    const uint value_dim = eights(p.value_dim) * 8, stride = value_dim + 2;
    const uint first = seen.x / 256, end = (seen.y + 255) / 256;
    partial += (ulong(group.y) * p.heads + head) * p.spans * stride;
    float greatest = p.sinks != 0 ? sinks[head] : -INFINITY;
    for (uint s = first; s < end; s++) greatest = max(greatest, partial[s * stride]);
    float sum = p.sinks != 0 ? precise::exp(sinks[head] - greatest) : 0.0f;
    for (uint s = first; s < end; s++)
        sum = fma(partial[s * stride + 1], precise::exp(partial[s * stride] - greatest), sum);
    for (uint d = index; d < p.value_dim; d += 128) {
        float r = 0.0f;
        for (uint s = first; s < end; s++)
            r = fma(partial[s * stride + 2 + d], precise::exp(partial[s * stride] - greatest), r);
        out[(ulong(row) * p.heads + head) * p.value_dim + d] = r / sum;
    }
}
