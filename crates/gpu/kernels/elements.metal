// Ops that work element by element, one a thread. The result may lie where an input does.

struct UnaryParams {
    uint count;
    uint op;    // an activation, or one of those below
    float by;
};

enum { SILU = 0, GELU_TANH, GELU_ERF, GELU_QUICK, RELU, RELU_2, SIGMOID, CLAMPED_SILU, TANH, SCALE, SOFTCAP };
enum { ADD = 16, MUL = 17 };

static inline float sigmoid_of(float x) { return 1.0f / (1.0f + precise::exp(-x)); }

// Abramowitz and Stegun, 7.1.26: off by 1.5e-7 at most.
static inline float erf_of(float x) {
    const float t = 1.0f / fma(0.3275911f, abs(x), 1.0f);
    float y = fma(1.061405429f, t, -1.453152027f);
    y = fma(y, t, 1.421413741f);
    y = fma(y, t, -0.284496736f);
    y = fma(y, t, 0.254829592f);
    y = 1.0f - y * t * precise::exp(-x * x);
    return x < 0.0f ? -y : y;
}

static inline float activated(float x, uint op) {
    switch (op) {
        case SILU: return x * sigmoid_of(x);
        case GELU_TANH: return x / 2.0f * (1.0f + precise::tanh(0.7978845608f * fma(0.044715f * x * x, x, x)));
        case GELU_ERF: return x / 2.0f * (1.0f + erf_of(x * 0.7071067812f));
        case GELU_QUICK: return x * sigmoid_of(1.702f * x);
        case RELU: return max(x, 0.0f);
        case RELU_2: return max(x, 0.0f) * max(x, 0.0f);
        case SIGMOID: return sigmoid_of(x);
        case TANH: return precise::tanh(x);
        default: return min(x, 7.0f) * sigmoid_of(1.702f * min(x, 7.0f));
    }
}

kernel void unary(device const float   *x   [[buffer(0)]],
                  device float         *out [[buffer(1)]],
                  constant UnaryParams &p   [[buffer(2)]],
                  uint i [[thread_position_in_grid]]) {
    if (i >= p.count) return;
    const float v = x[i];
    out[i] = p.op == SCALE ? v * p.by : p.op == SOFTCAP ? p.by * precise::tanh(v / p.by) : activated(v, p.op);
}

// A sum, a product, or a gated unit: the activation of the first times the second.
kernel void binary(device const float   *a   [[buffer(0)]],
                   device const float   *b   [[buffer(1)]],
                   device float         *out [[buffer(2)]],
                   constant UnaryParams &p   [[buffer(3)]],
                   uint i [[thread_position_in_grid]]) {
    if (i >= p.count) return;
    const float x = a[i], y = b[i];
    if (p.op == ADD) out[i] = x + y;
    else if (p.op == MUL) out[i] = x * y;
    else out[i] = activated(x, p.op) * (p.op == CLAMPED_SILU ? clamp(y, -7.0f, 7.0f) + 1.0f : y);
}

struct ColumnsParams {
    uint count;   // elements of all rows
    uint width;   // of a row
    uint length;  // of the second operand, the width or 1
    uint op;      // ADD or MUL
};

// Each row with one row, or with one number.
kernel void columns(device const float     *x   [[buffer(0)]],
                    device const float     *w   [[buffer(1)]],
                    device float           *out [[buffer(2)]],
                    constant ColumnsParams &p   [[buffer(3)]],
                    uint i [[thread_position_in_grid]]) {
    if (i >= p.count) return;
    const float by = w[p.length == 1 ? 0 : i % p.width];
    out[i] = p.op == ADD ? x[i] + by : x[i] * by;
}

struct TakeParams {
    uint count;        // elements of the result
    uint first, len, every;
};

// Of each `every` columns the `len` from `first` on.
kernel void take(device const float  *x   [[buffer(0)]],
                 device float        *out [[buffer(1)]],
                 constant TakeParams &p   [[buffer(2)]],
                 uint i [[thread_position_in_grid]]) {
    if (i < p.count) out[i] = x[ulong(i / p.len) * p.every + p.first + i % p.len];
}

struct SelectParams {
    uint count;  // elements of the result
    uint width;
};

// Rows by a list of their numbers.
kernel void select_rows(device const float    *x    [[buffer(0)]],
                        device const uint     *rows [[buffer(1)]],
                        device float          *out  [[buffer(2)]],
                        constant SelectParams &p    [[buffer(3)]],
                        uint i [[thread_position_in_grid]]) {
    if (i < p.count) out[i] = x[ulong(rows[i / p.width]) * p.width + i % p.width];
}

struct RopeParams {
    uint rows, heads, head_dim;
    uint first, half_dims;  // pairs begin at element `first` of a head
    uint halved;            // pairs are half_dims apart, else neighbours
};

// Turns pairs of elements by their row's cosines and sines, one pair or one element that stays a thread.
kernel void rope(device const float  *x     [[buffer(0)]],
                 device const float2 *turns [[buffer(1)]],
                 device float        *out   [[buffer(2)]],
                 constant RopeParams &p     [[buffer(3)]],
                 uint i [[thread_position_in_grid]]) {
    const uint still = p.head_dim - 2 * p.half_dims, threads = p.half_dims + still;
    const uint row = i / (threads * p.heads), head = i / threads % p.heads, t = i % threads;
    if (row >= p.rows) return;
    const ulong base = (ulong(row) * p.heads + head) * p.head_dim;
    if (t >= p.half_dims) {
        const uint e = t - p.half_dims, at = e < p.first ? e : e + 2 * p.half_dims;
        out[base + at] = x[base + at];
        return;
    }
    const uint a = p.first + (p.halved != 0 ? t : 2 * t), b = p.halved != 0 ? a + p.half_dims : a + 1;
    const float2 turn = turns[ulong(row) * p.half_dims + t];
    const float u = x[base + a], v = x[base + b];
    out[base + a] = u * turn.x - v * turn.y;
    out[base + b] = u * turn.y + v * turn.x;
}
