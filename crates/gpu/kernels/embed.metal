// Rows of a table, by a list of their numbers: a threadgroup of 256 for each.

struct EmbedParams {
    uint columns;
    uint groups;  // of 32 columns
};

template <class F>
kernel void embed(device const uint4   *low  [[buffer(0)]],
                  device const uint    *high [[buffer(1)]],
                  device const uchar   *head [[buffer(2)]],
                  device const uint    *rows [[buffer(3)]],
                  device float         *out  [[buffer(4)]],
                  constant EmbedParams &p    [[buffer(5)]],
                  uint at    [[threadgroup_position_in_grid]],
                  uint index [[thread_index_in_threadgroup]]) {
    Planes planes;
    planes.low = low;
    planes.high = high;
    planes.head = head;
    planes.groups = p.groups;
    out += ulong(at) * p.columns;
    for (uint group = index; group < p.groups; group += 256) {
        const typename F::Raw raw = F::fetch(planes, rows[at], group);
#pragma unroll
        for (uint q = 0; q < 8; q++) {
            const float4 w = F::quad(raw, q);
            const float2 line = F::line(raw, q / 4);
#pragma unroll
            for (uint k = 0; k < 4; k++) {
                const uint column = 32 * group + 4 * q + k;
                if (column < p.columns) out[column] = F::PLAIN ? w[k] : fma(line.x, w[k], line.y);
            }
        }
    }
}

template [[host_name("embed_f32")]] kernel decltype(embed<F32>) embed<F32>;
template [[host_name("embed_f16")]] kernel decltype(embed<F16>) embed<F16>;
template [[host_name("embed_bf16")]] kernel decltype(embed<BF16>) embed<BF16>;
template [[host_name("embed_q4_0")]] kernel decltype(embed<Q4_0>) embed<Q4_0>;
template [[host_name("embed_q4_1")]] kernel decltype(embed<Q4_1>) embed<Q4_1>;
template [[host_name("embed_q5_0")]] kernel decltype(embed<Q5_0>) embed<Q5_0>;
template [[host_name("embed_q5_1")]] kernel decltype(embed<Q5_1>) embed<Q5_1>;
template [[host_name("embed_q8_0")]] kernel decltype(embed<Q8_0>) embed<Q8_0>;
template [[host_name("embed_q2_k")]] kernel decltype(embed<Q2_K>) embed<Q2_K>;
template [[host_name("embed_q3_k")]] kernel decltype(embed<Q3_K>) embed<Q3_K>;
template [[host_name("embed_q4_k")]] kernel decltype(embed<Q4_K>) embed<Q4_K>;
template [[host_name("embed_q5_k")]] kernel decltype(embed<Q5_K>) embed<Q5_K>;
template [[host_name("embed_q6_k")]] kernel decltype(embed<Q6_K>) embed<Q6_K>;
template [[host_name("embed_iq4_nl")]] kernel decltype(embed<IQ4_NL>) embed<IQ4_NL>;
template [[host_name("embed_iq4_xs")]] kernel decltype(embed<IQ4_XS>) embed<IQ4_XS>;
template [[host_name("embed_mxfp4")]] kernel decltype(embed<MXFP4>) embed<MXFP4>;
