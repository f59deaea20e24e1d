// Formats of weights. A matrix lies in three planes, row after row; columns go by groups of 32, padded with zeros.
//   low   the codes' low bits, or whole numbers: units of 16 bytes. Of 32 groups side by side the first units stand
//         together, then the second ones, and so on, so that 32 lanes with a group each load whole lines
//   high  what codes have above their low bits, words of a group together
//   head  scales and minimums, as `pack.rs` says for each format
//
// A format is a type with
//   Raw                      a group as it is loaded
//   fetch(planes, row, group)
//   quad(raw, q)             numbers for its weights 4q to 4q + 3. Those of codes are between 1 and 2: the code in the
//                            first bits of the mantissa, so that none needs converting
//   line(raw, half)          what makes weights of these numbers: weight = number * line.x + line.y, for either half of
//                            the group
//   HALVES                   whether halves differ
//   PLAIN                    whether numbers are the weights
struct Planes {
    device const uint4 *low;
    device const uint *high;
    device const uchar *head;
    uint groups;  // of a row
};

static inline ulong group_at(Planes p, uint row, uint group) { return ulong(row) * p.groups + group; }

static inline uint4 low_unit(Planes p, uint row, uint group, uint unit, uint units) {
    const uint first = group / 32 * 32, together = min(32u, p.groups - first);
    return p.low[group_at(p, row, first) * units + unit * together + group % 32];
}

static inline float half_at(device const uchar *head, ulong i) { return float(((device const half *)head)[i]); }

// Bits from `bit` on of a word, moved to bit `to`.
static inline uint moved(uint word, uint bit, uint to) { return bit <= to ? word << (to - bit) : word >> (bit - to); }

static inline float mantissa(uint bits) { return as_type<float>(bits | 0x3f800000u); }

// Nibble `i` of a word as 1 + code / 16, or further down in the mantissa.
static inline uint nibble(uint word, uint i, uint to) { return moved(word, 4 * i, to) & (15u << to); }

// Four codes of `bits` bits, the low four of which are nibbles of `low`, the others from bit `bit` on of `high`.
static inline float4 quad_4(uint4 low, uint q) {
    const uint w = low[q / 2], i = q % 2 * 4;
    return float4(mantissa(nibble(w, i, 19)), mantissa(nibble(w, i + 1, 19)), mantissa(nibble(w, i + 2, 19)),
                  mantissa(nibble(w, i + 3, 19)));
}

static inline float code_5(uint low, uint i, uint high, uint bit) {
    return mantissa(nibble(low, i, 18) | (moved(high, bit, 22) & (1u << 22)));
}

static inline float4 quad_5(uint4 low, uint high, uint q) {
    const uint w = low[q / 2], i = q % 2 * 4, b = 4 * q;
    return float4(code_5(w, i, high, b), code_5(w, i + 1, high, b + 1), code_5(w, i + 2, high, b + 2),
                  code_5(w, i + 3, high, b + 3));
}

// Two bits from `bit` on of a word, at `to` in the mantissa.
static inline uint two_bits(uint word, uint bit, uint to) { return moved(word, bit, to) & (3u << to); }

// Levels of IQ4_NL and IQ4_XS (ggml's kvalues_iq4nl), and twice the numbers of E2M1 (OCP Microscaling Formats 1.0).
constant float UNEVEN[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constant float TWICE_E2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static inline float4 quad_of(constant float *levels, uint4 low, uint q) {
    const uint w = low[q / 2] >> (q % 2 * 16);
    return float4(levels[w & 15], levels[w >> 4 & 15], levels[w >> 8 & 15], levels[w >> 12 & 15]);
}

struct F32 {
    enum { HALVES = 1, PLAIN = 1 };
    struct Raw { uint4 low[8]; };
    static inline Raw fetch(Planes p, uint row, uint group) {
        Raw r;
#pragma unroll
        for (uint u = 0; u < 8; u++) r.low[u] = low_unit(p, row, group, u, 8);
        return r;
    }
    static inline float4 quad(thread const Raw &r, uint q) { return as_type<float4>(r.low[q]); }
    static inline float2 line(thread const Raw &, uint) { return float2(1.0f, 0.0f); }
};

struct F16 {
    enum { HALVES = 1, PLAIN = 1 };
    struct Raw { uint4 low[4]; };
    static inline Raw fetch(Planes p, uint row, uint group) {
        Raw r;
#pragma unroll
        for (uint u = 0; u < 4; u++) r.low[u] = low_unit(p, row, group, u, 4);
        return r;
    }
    static inline float4 quad(thread const Raw &r, uint q) {
        const uint4 u = r.low[q / 2];
        const half2 a = as_type<half2>(u[q % 2 * 2]), b = as_type<half2>(u[q % 2 * 2 + 1]);
        return float4(float(a[0]), float(a[1]), float(b[0]), float(b[1]));
    }
    static inline float2 line(thread const Raw &, uint) { return float2(1.0f, 0.0f); }
};

struct BF16 {
    enum { HALVES = 1, PLAIN = 1 };
    typedef F16::Raw Raw;
    static inline Raw fetch(Planes p, uint row, uint group) { return F16::fetch(p, row, group); }
    static inline float4 quad(thread const Raw &r, uint q) {
        const uint4 u = r.low[q / 2];
        const uint a = u[q % 2 * 2], b = u[q % 2 * 2 + 1];
        return float4(as_type<float>(a << 16), as_type<float>(a & 0xffff0000u), as_type<float>(b << 16),
                      as_type<float>(b & 0xffff0000u));
    }
    static inline float2 line(thread const Raw &, uint) { return float2(1.0f, 0.0f); }
};

// Codes of 4 bits and a scale.
struct Nibbles {
    struct Raw { uint4 low; float d; };
    static inline Raw fetch(Planes p, uint row, uint group) {
        Raw r;
        r.low = low_unit(p, row, group, 0, 1);
        r.d = half_at(p.head, group_at(p, row, group));
        return r;
    }
};

struct Q4_0 {
    enum { HALVES = 1, PLAIN = 0 };
    typedef Nibbles::Raw Raw;
    static inline Raw fetch(Planes p, uint row, uint group) { return Nibbles::fetch(p, row, group); }
    static inline float4 quad(thread const Raw &r, uint q) { return quad_4(r.low, q); }
    static inline float2 line(thread const Raw &r, uint) { return float2(16.0f * r.d, -24.0f * r.d); }
};

struct IQ4_NL {
    enum { HALVES = 1, PLAIN = 0 };
    typedef Nibbles::Raw Raw;
    static inline Raw fetch(Planes p, uint row, uint group) { return Nibbles::fetch(p, row, group); }
    static inline float4 quad(thread const Raw &r, uint q) { return quad_of(UNEVEN, r.low, q); }
    static inline float2 line(thread const Raw &r, uint) { return float2(r.d, 0.0f); }
};

struct Q4_1 {
    enum { HALVES = 1, PLAIN = 0 };
    struct Raw { uint4 low; float d, m; };
    static inline Raw fetch(Planes p, uint row, uint group) {
        Raw r;
        const ulong at = 2 * group_at(p, row, group);
        r.low = low_unit(p, row, group, 0, 1);
        r.d = half_at(p.head, at);
        r.m = half_at(p.head, at + 1);
        return r;
    }
    static inline float4 quad(thread const Raw &r, uint q) { return quad_4(r.low, q); }
    static inline float2 line(thread const Raw &r, uint) { return float2(16.0f * r.d, fma(-16.0f, r.d, r.m)); }
};

struct Q5_0 {
    enum { HALVES = 1, PLAIN = 0 };
    struct Raw { uint4 low; uint high; float d; };
    static inline Raw fetch(Planes p, uint row, uint group) {
        Raw r;
        const ulong at = group_at(p, row, group);
        r.low = low_unit(p, row, group, 0, 1);
        r.high = p.high[at];
        r.d = half_at(p.head, at);
        return r;
    }
    static inline float4 quad(thread const Raw &r, uint q) { return quad_5(r.low, r.high, q); }
    static inline float2 line(thread const Raw &r, uint) { return float2(32.0f * r.d, -48.0f * r.d); }
};

struct Q5_1 {
    enum { HALVES = 1, PLAIN = 0 };
    struct Raw { uint4 low; uint high; float d, m; };
    static inline Raw fetch(Planes p, uint row, uint group) {
        Raw r;
        const ulong at = group_at(p, row, group);
        r.low = low_unit(p, row, group, 0, 1);
        r.high = p.high[at];
        r.d = half_at(p.head, 2 * at);
        r.m = half_at(p.head, 2 * at + 1);
        return r;
    }
    static inline float4 quad(thread const Raw &r, uint q) { return quad_5(r.low, r.high, q); }
    static inline float2 line(thread const Raw &r, uint) { return float2(32.0f * r.d, fma(-32.0f, r.d, r.m)); }
};

struct Q8_0 {
    enum { HALVES = 1, PLAIN = 0 };
    struct Raw { uint4 low[2]; float d; };
    static inline Raw fetch(Planes p, uint row, uint group) {
        Raw r;
#pragma unroll
        for (uint u = 0; u < 2; u++) r.low[u] = low_unit(p, row, group, u, 2);
        r.d = half_at(p.head, group_at(p, row, group));
        return r;
    }
    static inline float code(uint word, uint i) { return mantissa(moved(word, 8 * i, 15) & (255u << 15)); }
    static inline float4 quad(thread const Raw &r, uint q) {
        const uint w = r.low[q / 4][q % 4];
        return float4(code(w, 0), code(w, 1), code(w, 2), code(w, 3));
    }
    static inline float2 line(thread const Raw &r, uint) { return float2(256.0f * r.d, -384.0f * r.d); }
};

// The head of a block of Q4_K and Q5_K, and which of its groups this is: the file's own sixteen bytes.
struct Lines {
    uint4 head;
    uint group;
};

// A group's scale and minimum, by the block's factors. Groups 4 to 7 have their high bits beside those of groups 0 to 3.
static inline float2 factors_of(thread const Lines &l) {
    const uint shift = l.group % 4 * 8;
    const uint a = l.head[1] >> shift & 255, b = l.head[2] >> shift & 255, c = l.head[3] >> shift & 255;
    const uint scale = l.group < 4 ? a & 63 : (c & 15) | (a >> 6 << 4);
    const uint minimum = l.group < 4 ? b & 63 : c >> 4 | (b >> 6 << 4);
    const half2 d = as_type<half2>(l.head[0]);
    return float2(float(d[0]) * float(scale), float(d[1]) * float(minimum));
}

static inline Lines lines_of(Planes p, uint row, uint group) {
    Lines l;
    l.head = ((device const uint4 *)p.head)[group_at(p, row, group) / 8];
    l.group = group % 8;
    return l;
}

struct Q4_K {
    enum { HALVES = 1, PLAIN = 0 };
    struct Raw { uint4 low; Lines lines; };
    static inline Raw fetch(Planes p, uint row, uint group) {
        Raw r;
        r.low = low_unit(p, row, group, 0, 1);
        r.lines = lines_of(p, row, group);
        return r;
    }
    static inline float4 quad(thread const Raw &r, uint q) { return quad_4(r.low, q); }
    static inline float2 line(thread const Raw &r, uint) {
        const float2 f = factors_of(r.lines);
        return float2(16.0f * f.x, -16.0f * f.x - f.y);
    }
};

struct Q5_K {
    enum { HALVES = 1, PLAIN = 0 };
    struct Raw { uint4 low; uint high; Lines lines; };
    static inline Raw fetch(Planes p, uint row, uint group) {
        Raw r;
        r.low = low_unit(p, row, group, 0, 1);
        r.high = p.high[group_at(p, row, group)];
        r.lines = lines_of(p, row, group);
        return r;
    }
    static inline float4 quad(thread const Raw &r, uint q) { return quad_5(r.low, r.high, q); }
    static inline float2 line(thread const Raw &r, uint) {
        const float2 f = factors_of(r.lines);
        return float2(32.0f * f.x, -32.0f * f.x - f.y);
    }
};

struct Q6_K {
    enum { HALVES = 2, PLAIN = 0 };
    struct Raw { uint4 low; uint2 high; float d; uint scales; };
    static inline Raw fetch(Planes p, uint row, uint group) {
        Raw r;
        const ulong at = group_at(p, row, group);
        device const ushort *head = (device const ushort *)p.head + at / 8 * 9;
        r.low = low_unit(p, row, group, 0, 1);
        r.high = ((device const uint2 *)p.high)[at];
        r.scales = head[group % 8];
        r.d = float(as_type<half>(head[8]));
        return r;
    }
    static inline float code(uint low, uint i, uint high, uint bit) {
        return mantissa(nibble(low, i, 17) | two_bits(high, bit, 21));
    }
    static inline float4 quad(thread const Raw &r, uint q) {
        const uint w = r.low[q / 2], i = q % 2 * 4, h = r.high[q / 4], b = q % 4 * 8;
        return float4(code(w, i, h, b), code(w, i + 1, h, b + 2), code(w, i + 2, h, b + 4), code(w, i + 3, h, b + 6));
    }
    static inline float2 line(thread const Raw &r, uint half_) {
        const int scale = int(r.scales << (24 - 8 * half_)) >> 24;
        const float s = r.d * float(scale);
        return float2(64.0f * s, -96.0f * s);
    }
};

struct Q3_K {
    enum { HALVES = 2, PLAIN = 0 };
    struct Raw { uint2 low; uint high; float d; uint scales; };
    static inline Raw fetch(Planes p, uint row, uint group) {
        Raw r;
        const ulong at = group_at(p, row, group);
        const uint g = group % 8;
        device const ushort *head = (device const ushort *)p.head + at / 8 * 7;
        r.low = ((device const uint2 *)p.low)[at];
        r.high = p.high[at];
        // Low nibbles of both scales, then their high two bits.
        r.scales = (uint(head[g / 2]) >> (g % 2 * 8) & 255) | (uint(head[4 + g / 4]) >> (g % 4 * 4) & 15) << 8;
        r.d = float(as_type<half>(head[6]));
        return r;
    }
    static inline float code(uint low, uint bit, uint high, uint i) {
        return mantissa(two_bits(low, bit, 20) | (moved(high, i, 22) & (1u << 22)));
    }
    static inline float4 quad(thread const Raw &r, uint q) {
        const uint w = r.low[q / 4], b = q % 4 * 8, i = 4 * q, h = r.high;
        return float4(code(w, b, h, i), code(w, b + 2, h, i + 1), code(w, b + 4, h, i + 2), code(w, b + 6, h, i + 3));
    }
    static inline float2 line(thread const Raw &r, uint half_) {
        const uint scale = (r.scales >> (4 * half_) & 15) | (r.scales >> (8 + 2 * half_) & 3) << 4;
        const float s = r.d * float(int(scale) - 32);
        return float2(8.0f * s, -12.0f * s);
    }
};

struct Q2_K {
    enum { HALVES = 2, PLAIN = 0 };
    struct Raw { uint2 low; float d, dmin; uint both; };
    static inline Raw fetch(Planes p, uint row, uint group) {
        Raw r;
        const ulong at = group_at(p, row, group);
        device const ushort *head = (device const ushort *)p.head + at / 8 * 10;
        r.low = ((device const uint2 *)p.low)[at];
        r.both = head[group % 8];
        r.d = float(as_type<half>(head[8]));
        r.dmin = float(as_type<half>(head[9]));
        return r;
    }
    static inline float4 quad(thread const Raw &r, uint q) {
        const uint w = r.low[q / 4], b = q % 4 * 8;
        return float4(mantissa(two_bits(w, b, 21)), mantissa(two_bits(w, b + 2, 21)), mantissa(two_bits(w, b + 4, 21)),
                      mantissa(two_bits(w, b + 6, 21)));
    }
    static inline float2 line(thread const Raw &r, uint half_) {
        const uint both = r.both >> (8 * half_);
        const float s = r.d * float(both & 15), m = r.dmin * float(both >> 4 & 15);
        return float2(4.0f * s, -4.0f * s - m);
    }
};

struct IQ4_XS {
    enum { HALVES = 1, PLAIN = 0 };
    struct Raw { uint4 low; float d; };
    static inline Raw fetch(Planes p, uint row, uint group) {
        Raw r;
        const ulong at = group_at(p, row, group);
        const uint g = group % 8;
        device const ushort *head = (device const ushort *)p.head + at / 8 * 4;
        const uint scale = (uint(head[2 + g / 4]) >> (g % 4 * 4) & 15) | (uint(head[1]) >> (2 * g) & 3) << 4;
        r.low = low_unit(p, row, group, 0, 1);
        r.d = float(as_type<half>(head[0])) * float(int(scale) - 32);
        return r;
    }
    static inline float4 quad(thread const Raw &r, uint q) { return quad_of(UNEVEN, r.low, q); }
    static inline float2 line(thread const Raw &r, uint) { return float2(r.d, 0.0f); }
};

struct MXFP4 {
    enum { HALVES = 1, PLAIN = 0 };
    struct Raw { uint4 low; uint e; };
    static inline Raw fetch(Planes p, uint row, uint group) {
        Raw r;
        r.low = low_unit(p, row, group, 0, 1);
        r.e = p.head[group_at(p, row, group)];
        return r;
    }
    static inline float4 quad(thread const Raw &r, uint q) { return quad_of(TWICE_E2M1, r.low, q); }
    // Half of the scale 2^(e - 127); below an e of 2 that is a subnormal number.
    static inline float2 line(thread const Raw &r, uint) {
        return float2(as_type<float>(r.e < 2 ? 1u << (21 + r.e) : (r.e - 1) << 23), 0.0f);
    }
};
