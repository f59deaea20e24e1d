//! From a file's blocks to the planes that kernels read; `kernels/formats.metal` has the same from their side.
//!
//! No plane has a byte more than the blocks, padding apart. What the head holds, a block of 32 or 256 at a time:
//!
//! | format | head |
//! |---|---|
//! | Q4_0, Q5_0, Q8_0, IQ4_NL | scale, f16 |
//! | Q4_1, Q5_1 | scale and minimum, f16 |
//! | MXFP4 | exponent, a byte |
//! | Q4_K, Q5_K | the file's first sixteen bytes |
//! | Q6_K | sixteen scales, i8; factor, f16 |
//! | Q3_K | sixteen low nibbles of scales; their high two bits, in order; factor, f16 |
//! | Q2_K | sixteen bytes of scale and minimum; both factors, f16 |
//! | IQ4_XS | the file's first eight bytes |

use cera_quant::{Type, iq4_nl, iq4_xs, mxfp4, q2_k, q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0};

/// Columns of a group.
pub const GROUP: usize = 32;

/// A format that kernels read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    ty: Type,
    /// What kernels are called by it.
    name: &'static str,
    /// Bytes of a group in the low plane.
    low: usize,
    /// Bytes of a group in the high plane.
    high: usize,
    /// Bytes of a block's head.
    head: usize,
}

impl Layout {
    /// How weights of a type lie; `None` where no kernel reads them.
    pub fn of(ty: Type) -> Option<Layout> {
        let (name, low, high, head) = match ty {
            Type::F32 => ("f32", 128, 0, 0),
            Type::F16 => ("f16", 64, 0, 0),
            Type::BF16 => ("bf16", 64, 0, 0),
            Type::Q4_0 => ("q4_0", 16, 0, 2),
            Type::Q4_1 => ("q4_1", 16, 0, 4),
            Type::Q5_0 => ("q5_0", 16, 4, 2),
            Type::Q5_1 => ("q5_1", 16, 4, 4),
            Type::Q8_0 => ("q8_0", 32, 0, 2),
            Type::Q2_K => ("q2_k", 8, 0, 20),
            Type::Q3_K => ("q3_k", 8, 4, 14),
            Type::Q4_K => ("q4_k", 16, 0, 16),
            Type::Q5_K => ("q5_k", 16, 4, 16),
            Type::Q6_K => ("q6_k", 16, 8, 18),
            Type::IQ4_NL => ("iq4_nl", 16, 0, 2),
            Type::IQ4_XS => ("iq4_xs", 16, 0, 8),
            Type::MXFP4 => ("mxfp4", 16, 0, 1),
            _ => return None,
        };
        Some(Layout { ty, name, low, high, head })
    }

    /// What kernels are called by it.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Bytes that a row of so many columns has in each plane.
    pub fn row(self, columns: usize) -> [usize; 3] {
        let groups = columns.div_ceil(GROUP);
        let blocks = if self.ty.block_len() > 1 { columns / self.ty.block_len() } else { 0 };
        [groups * self.low, groups * self.high, blocks * self.head]
    }
}

/// A matrix in planes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Packed {
    /// Low, high and head, row after row.
    pub planes: [Vec<u8>; 3],
}

/// Packs rows of `columns` weights, on several threads. `bytes` are whole rows of the layout's type.
pub fn pack(layout: Layout, columns: usize, bytes: &[u8]) -> Packed {
    let stride = layout.ty.row_bytes(columns).unwrap_or(0).max(1);
    let rows = bytes.len() / stride;
    let sizes = layout.row(columns);
    let mut planes = sizes.map(|size| vec![0; rows * size]);
    let [mut low, mut high, mut head] = planes.each_mut().map(Vec::as_mut_slice);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // A thread is worth its start for a megabyte.
    let share = rows.div_ceil(cores.min(bytes.len() / (1 << 20) + 1)).max(1);
    std::thread::scope(|scope| {
        let mut rest = bytes.get(..rows * stride).unwrap_or_default();
        while !rest.is_empty() {
            let count = share.min(rest.len() / stride);
            let part;
            (part, rest) = rest.split_at(count * stride);
            let mut planes = [&mut low, &mut high, &mut head]
                .into_iter()
                .zip(sizes)
                .map(|(plane, size)| plane.split_off_mut(..count * size).unwrap_or_default());
            let parts = [(); 3].map(|()| planes.next().unwrap_or_default());
            scope.spawn(move || pack_rows(layout, columns, part, stride, parts));
        }
    });
    Packed { planes }
}

fn pack_rows(layout: Layout, columns: usize, bytes: &[u8], stride: usize, planes: [&mut [u8]; 3]) {
    let [low_size, high_size, head_size] = layout.row(columns);
    let [low, high, head] = planes;
    for (r, row) in bytes.chunks_exact(stride).enumerate() {
        let mut out = RowPlanes {
            layout,
            groups: columns.div_ceil(GROUP),
            low: &mut low[r * low_size..][..low_size],
            high: &mut high[r * high_size..][..high_size],
            head: &mut head[r * head_size..][..head_size],
        };
        pack_row(row, &mut out);
    }
}

/// The planes of one row.
struct RowPlanes<'a> {
    layout: Layout,
    groups: usize,
    low: &'a mut [u8],
    high: &'a mut [u8],
    head: &'a mut [u8],
}

impl RowPlanes<'_> {
    /// Puts 16 bytes where the unit of a group is: of up to 32 groups side by side the first units come first.
    fn unit(&mut self, group: usize, unit: usize, bytes: &[u8]) {
        let units = self.layout.low / 16;
        let first = group / 32 * 32;
        let together = (self.groups - first).min(32);
        let at = (first * units + unit * together + group % 32) * 16;
        self.low[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The nibbles of a group's codes, and what codes have above them, in `bits` bits each.
    fn codes(&mut self, group: usize, codes: &[u8], bits: usize) {
        let nibbles: [u8; 16] = std::array::from_fn(|b| codes[2 * b] & 15 | codes[2 * b + 1] << 4);
        self.unit(group, 0, &nibbles);
        if bits > 4 {
            let high = gathered(codes.iter().map(|c| c >> 4), bits - 4);
            let size = self.layout.high;
            self.high[group * size..][..size].copy_from_slice(&high[..size]);
        }
    }

    /// A group's codes of two bits, and a third one above them.
    fn pairs(&mut self, group: usize, codes: &[u8]) {
        self.low[group * 8..][..8].copy_from_slice(&gathered(codes.iter().map(|c| c & 3), 2));
        if self.layout.high == 4 {
            self.high[group * 4..][..4].copy_from_slice(&gathered(codes.iter().map(|c| c >> 2), 1)[..4]);
        }
    }

    fn head(&mut self, block: usize, bytes: &[&[u8]]) {
        let size = self.layout.head;
        let all = bytes.iter().copied().flatten();
        self.head[block * size..][..size].iter_mut().zip(all).for_each(|(to, from)| *to = *from);
    }
}

/// 32 numbers of one or two bits side by side, the first in the lowest bits.
fn gathered(numbers: impl Iterator<Item = u8>, bits: usize) -> [u8; 8] {
    let word = numbers.enumerate().fold(0u64, |word, (i, n)| word | u64::from(n) << (i * bits));
    word.to_le_bytes()
}

fn pack_row(row: &[u8], out: &mut RowPlanes<'_>) {
    /// For each block of a row: its number and its bytes.
    fn blocks<const B: usize>(row: &[u8]) -> impl Iterator<Item = (usize, &[u8; B])> {
        row.as_chunks::<B>().0.iter().enumerate()
    }
    match out.layout.ty {
        Type::Q4_0 => {
            for (b, block) in blocks(row) {
                out.codes(b, &q4_0::codes(block), 4);
                out.head(b, &[&block[..2]]);
            }
        }
        Type::IQ4_NL => {
            for (b, block) in blocks(row) {
                out.codes(b, &iq4_nl::codes(block), 4);
                out.head(b, &[&block[..2]]);
            }
        }
        Type::MXFP4 => {
            for (b, block) in blocks(row) {
                out.codes(b, &mxfp4::codes(block), 4);
                out.head(b, &[&block[..1]]);
            }
        }
        Type::Q4_1 => {
            for (b, block) in blocks(row) {
                out.codes(b, &q4_1::codes(block), 4);
                out.head(b, &[&block[..4]]);
            }
        }
        Type::Q5_0 => {
            for (b, block) in blocks(row) {
                out.codes(b, &q5_0::codes(block), 5);
                out.head(b, &[&block[..2]]);
            }
        }
        Type::Q5_1 => {
            for (b, block) in blocks(row) {
                out.codes(b, &q5_1::codes(block), 5);
                out.head(b, &[&block[..4]]);
            }
        }
        Type::Q8_0 => {
            for (b, block) in blocks(row) {
                let codes = q8_0::codes(block).map(|q| q as u8 ^ 0x80);
                out.unit(b, 0, &codes[..16]);
                out.unit(b, 1, &codes[16..]);
                out.head(b, &[&block[..2]]);
            }
        }
        Type::Q4_K => {
            for (b, block) in blocks(row) {
                q4_k::codes(block).iter().enumerate().for_each(|(g, c)| out.codes(8 * b + g, c, 4));
                out.head(b, &[&block[..16]]);
            }
        }
        Type::Q5_K => {
            for (b, block) in blocks(row) {
                q5_k::codes(block).iter().enumerate().for_each(|(g, c)| out.codes(8 * b + g, c, 5));
                out.head(b, &[&block[..16]]);
            }
        }
        Type::Q6_K => {
            for (b, block) in blocks(row) {
                let codes = q6_k::codes(block);
                codes.chunks_exact(GROUP).enumerate().for_each(|(g, c)| out.codes(8 * b + g, c, 6));
                out.head(b, &[&block[q6_k::SCALES..]]);
            }
        }
        Type::Q3_K => {
            for (b, block) in blocks(row) {
                let codes = q3_k::codes(block);
                codes.chunks_exact(GROUP).enumerate().for_each(|(g, c)| out.pairs(8 * b + g, c));
                let scales = q3_k::scales(block).map(|s| (s + 32) as u8);
                let low: [u8; 8] = std::array::from_fn(|i| scales[2 * i] & 15 | scales[2 * i + 1] << 4);
                let high = gathered(scales.iter().map(|s| s >> 4), 2);
                out.head(b, &[&low, &high[..4], &block[q3_k::D..]]);
            }
        }
        Type::Q2_K => {
            for (b, block) in blocks(row) {
                let codes = q2_k::codes(block);
                codes.chunks_exact(GROUP).enumerate().for_each(|(g, c)| out.pairs(8 * b + g, c));
                out.head(b, &[&block[..16], &block[q2_k::D..]]);
            }
        }
        Type::IQ4_XS => {
            for (b, block) in blocks(row) {
                iq4_xs::codes(block).iter().enumerate().for_each(|(g, c)| out.codes(8 * b + g, c, 4));
                out.head(b, &[&block[..8]]);
            }
        }
        // Numbers that are the weights: sixteen bytes a unit, the last of a row with padding.
        _ => {
            let size = out.layout.low;
            for (group, numbers) in row.chunks(size).enumerate() {
                numbers.chunks(16).enumerate().for_each(|(unit, bytes)| out.unit(group, unit, bytes));
            }
        }
    }
}
