// Products with matrices: out = x * w^T, each output one sequence of operations whatever the number of rows of x.
//
// A SIMD-group has R rows of the matrix and N of x. Its lanes take groups of 32 columns in turn: lane l has groups l, l + 32
// and so on. In a group a chain of fma goes through the columns by fours, the four are summed, and the sum goes through the
// format's line into the lane's total; lanes are summed last.

struct LinearParams {
    uint rows;     // of the matrix: outputs
    uint columns;  // of the matrix: inputs
    uint groups;   // of 32 columns, the last one padded
    uint n;        // rows of x
    uint after;    // 0: nothing; 1: `extra` is added, as wide as the output; 2: `extra` is one row
};

template <class F, uint N, uint R>
kernel void linear(device const uint4    *low   [[buffer(0)]],
                   device const uint     *high  [[buffer(1)]],
                   device const uchar    *head  [[buffer(2)]],
                   device const float    *x     [[buffer(3)]],
                   device const float    *extra [[buffer(4)]],
                   device float          *out   [[buffer(5)]],
                   constant LinearParams &p     [[buffer(6)]],
                   uint2 group [[threadgroup_position_in_grid]],
                   uint index  [[thread_index_in_threadgroup]],
                   uint lane   [[thread_index_in_simdgroup]],
                   uint simd   [[simdgroup_index_in_threadgroup]]) {
    // Groups that are staged at a time; rows of quads are one longer so that they begin in other banks.
    constexpr uint S = 128 / N;
    threadgroup float4 quads[N * 8 * (S + 1)];
    threadgroup float sums[N * S * 2];
    Planes planes;
    planes.low = low;
    planes.high = high;
    planes.head = head;
    planes.groups = p.groups;
    const uint first_x = group.x * N, first = (group.y * 8 + simd) * R;
    float total[R][N] = {};
    for (uint staged = 0; staged < p.groups; staged += S) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = index; i < N * S * 8; i += 256) {
            const uint n = i / (S * 8), g = i / 8 % S, q = i % 8;
            const uint column = (staged + g) * 32 + q * 4;
            device const float *row = x + ulong(min(first_x + n, p.n - 1)) * p.columns;
            float4 v = float4(0.0f);
            if (p.columns % 4 == 0) {
                if (column < p.columns) v = *(device const float4 *)(row + column);
            } else {
#pragma unroll
                for (uint k = 0; k < 4; k++)
                    if (column + k < p.columns) v[k] = row[column + k];
            }
            quads[(n * 8 + q) * (S + 1) + g] = v;
            // Four lanes have the half of a group.
            float sum = (v[0] + v[1]) + (v[2] + v[3]);
            sum += simd_shuffle_xor(sum, 1);
            sum += simd_shuffle_xor(sum, 2);
            if (q % 4 == 0) sums[(n * S + g) * 2 + q / 4] = sum;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint s = lane; s < S && staged + s < p.groups; s += 32) {
            typename F::Raw raw[R];
#pragma unroll
            for (uint r = 0; r < R; r++) raw[r] = F::fetch(planes, min(first + r, p.rows - 1), staged + s);
            float4 dot[R][N] = {};
#pragma unroll
            for (uint q = 0; q < 8; q++) {
                float4 v[N];
#pragma unroll
                for (uint n = 0; n < N; n++) v[n] = quads[(n * 8 + q) * (S + 1) + s];
#pragma unroll
                for (uint r = 0; r < R; r++) {
                    const float4 w = F::quad(raw[r], q);
#pragma unroll
                    for (uint n = 0; n < N; n++) dot[r][n] = fma(w, v[n], dot[r][n]);
                }
                const bool ends = q == 7 || (F::HALVES == 2 && q == 3);
                if (!ends) continue;
#pragma unroll
                for (uint r = 0; r < R; r++) {
                    const float2 line = F::line(raw[r], q / 4);
#pragma unroll
                    for (uint n = 0; n < N; n++) {
                        const float4 d = dot[r][n];
                        const float sum = (d[0] + d[1]) + (d[2] + d[3]);
                        threadgroup const float *xs = sums + (n * S + s) * 2;
                        if (F::PLAIN) {
                            total[r][n] += sum;
                        } else {
                            total[r][n] = fma(line.x, sum, total[r][n]);
                            total[r][n] = fma(line.y, F::HALVES == 2 ? xs[q / 4] : xs[0] + xs[1], total[r][n]);
                        }
                        dot[r][n] = float4(0.0f);
                    }
                }
            }
        }
    }
#pragma unroll
    for (uint r = 0; r < R; r++) {
#pragma unroll
        for (uint n = 0; n < N; n++) {
            float y = simd_sum(total[r][n]);
            if (lane != 0 || first + r >= p.rows || first_x + n >= p.n) continue;
            const ulong at = ulong(first_x + n) * p.rows + first + r;
            if (p.after == 1) y += extra[at];
            if (p.after == 2) y += extra[first + r];
            out[at] = y;
        }
    }
}

template [[host_name("linear_f32_1")]] kernel decltype(linear<F32, 1, 2>) linear<F32, 1, 2>;
template [[host_name("linear_f32_2")]] kernel decltype(linear<F32, 2, 2>) linear<F32, 2, 2>;
template [[host_name("linear_f32_4")]] kernel decltype(linear<F32, 4, 2>) linear<F32, 4, 2>;
template [[host_name("linear_f16_1")]] kernel decltype(linear<F16, 1, 2>) linear<F16, 1, 2>;
template [[host_name("linear_f16_2")]] kernel decltype(linear<F16, 2, 2>) linear<F16, 2, 2>;
template [[host_name("linear_f16_4")]] kernel decltype(linear<F16, 4, 2>) linear<F16, 4, 2>;
template [[host_name("linear_bf16_1")]] kernel decltype(linear<BF16, 1, 2>) linear<BF16, 1, 2>;
template [[host_name("linear_bf16_2")]] kernel decltype(linear<BF16, 2, 2>) linear<BF16, 2, 2>;
template [[host_name("linear_bf16_4")]] kernel decltype(linear<BF16, 4, 2>) linear<BF16, 4, 2>;
template [[host_name("linear_q4_0_1")]] kernel decltype(linear<Q4_0, 1, 2>) linear<Q4_0, 1, 2>;
template [[host_name("linear_q4_0_2")]] kernel decltype(linear<Q4_0, 2, 2>) linear<Q4_0, 2, 2>;
template [[host_name("linear_q4_0_4")]] kernel decltype(linear<Q4_0, 4, 2>) linear<Q4_0, 4, 2>;
template [[host_name("linear_q4_1_1")]] kernel decltype(linear<Q4_1, 1, 2>) linear<Q4_1, 1, 2>;
template [[host_name("linear_q4_1_2")]] kernel decltype(linear<Q4_1, 2, 2>) linear<Q4_1, 2, 2>;
template [[host_name("linear_q4_1_4")]] kernel decltype(linear<Q4_1, 4, 2>) linear<Q4_1, 4, 2>;
template [[host_name("linear_q5_0_1")]] kernel decltype(linear<Q5_0, 1, 2>) linear<Q5_0, 1, 2>;
template [[host_name("linear_q5_0_2")]] kernel decltype(linear<Q5_0, 2, 2>) linear<Q5_0, 2, 2>;
template [[host_name("linear_q5_0_4")]] kernel decltype(linear<Q5_0, 4, 2>) linear<Q5_0, 4, 2>;
template [[host_name("linear_q5_1_1")]] kernel decltype(linear<Q5_1, 1, 2>) linear<Q5_1, 1, 2>;
template [[host_name("linear_q5_1_2")]] kernel decltype(linear<Q5_1, 2, 2>) linear<Q5_1, 2, 2>;
template [[host_name("linear_q5_1_4")]] kernel decltype(linear<Q5_1, 4, 2>) linear<Q5_1, 4, 2>;
template [[host_name("linear_q8_0_1")]] kernel decltype(linear<Q8_0, 1, 2>) linear<Q8_0, 1, 2>;
template [[host_name("linear_q8_0_2")]] kernel decltype(linear<Q8_0, 2, 2>) linear<Q8_0, 2, 2>;
template [[host_name("linear_q8_0_4")]] kernel decltype(linear<Q8_0, 4, 2>) linear<Q8_0, 4, 2>;
template [[host_name("linear_q2_k_1")]] kernel decltype(linear<Q2_K, 1, 2>) linear<Q2_K, 1, 2>;
template [[host_name("linear_q2_k_2")]] kernel decltype(linear<Q2_K, 2, 2>) linear<Q2_K, 2, 2>;
template [[host_name("linear_q2_k_4")]] kernel decltype(linear<Q2_K, 4, 2>) linear<Q2_K, 4, 2>;
template [[host_name("linear_q3_k_1")]] kernel decltype(linear<Q3_K, 1, 2>) linear<Q3_K, 1, 2>;
template [[host_name("linear_q3_k_2")]] kernel decltype(linear<Q3_K, 2, 2>) linear<Q3_K, 2, 2>;
template [[host_name("linear_q3_k_4")]] kernel decltype(linear<Q3_K, 4, 2>) linear<Q3_K, 4, 2>;
template [[host_name("linear_q4_k_1")]] kernel decltype(linear<Q4_K, 1, 2>) linear<Q4_K, 1, 2>;
template [[host_name("linear_q4_k_2")]] kernel decltype(linear<Q4_K, 2, 2>) linear<Q4_K, 2, 2>;
template [[host_name("linear_q4_k_4")]] kernel decltype(linear<Q4_K, 4, 2>) linear<Q4_K, 4, 2>;
template [[host_name("linear_q5_k_1")]] kernel decltype(linear<Q5_K, 1, 2>) linear<Q5_K, 1, 2>;
template [[host_name("linear_q5_k_2")]] kernel decltype(linear<Q5_K, 2, 2>) linear<Q5_K, 2, 2>;
template [[host_name("linear_q5_k_4")]] kernel decltype(linear<Q5_K, 4, 2>) linear<Q5_K, 4, 2>;
template [[host_name("linear_q6_k_1")]] kernel decltype(linear<Q6_K, 1, 2>) linear<Q6_K, 1, 2>;
template [[host_name("linear_q6_k_2")]] kernel decltype(linear<Q6_K, 2, 2>) linear<Q6_K, 2, 2>;
template [[host_name("linear_q6_k_4")]] kernel decltype(linear<Q6_K, 4, 2>) linear<Q6_K, 4, 2>;
template [[host_name("linear_iq4_nl_1")]] kernel decltype(linear<IQ4_NL, 1, 2>) linear<IQ4_NL, 1, 2>;
template [[host_name("linear_iq4_nl_2")]] kernel decltype(linear<IQ4_NL, 2, 2>) linear<IQ4_NL, 2, 2>;
template [[host_name("linear_iq4_nl_4")]] kernel decltype(linear<IQ4_NL, 4, 2>) linear<IQ4_NL, 4, 2>;
template [[host_name("linear_iq4_xs_1")]] kernel decltype(linear<IQ4_XS, 1, 2>) linear<IQ4_XS, 1, 2>;
template [[host_name("linear_iq4_xs_2")]] kernel decltype(linear<IQ4_XS, 2, 2>) linear<IQ4_XS, 2, 2>;
template [[host_name("linear_iq4_xs_4")]] kernel decltype(linear<IQ4_XS, 4, 2>) linear<IQ4_XS, 4, 2>;
template [[host_name("linear_mxfp4_1")]] kernel decltype(linear<MXFP4, 1, 2>) linear<MXFP4, 1, 2>;
template [[host_name("linear_mxfp4_2")]] kernel decltype(linear<MXFP4, 2, 2>) linear<MXFP4, 2, 2>;
template [[host_name("linear_mxfp4_4")]] kernel decltype(linear<MXFP4, 4, 2>) linear<MXFP4, 4, 2>;
