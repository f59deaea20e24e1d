//! The kernels' text, and which file has which kernel.

/// What all files begin with.
const COMMON: &str = include_str!("../kernels/common.metal");

/// What files begin with whose kernels are made for each format of weights.
const FORMATS: &str = include_str!("../kernels/formats.metal");

/// One op's kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct File {
    /// The file's name, without ending.
    pub name: &'static str,
    text: &'static str,
    formats: bool,
    /// The host names of its kernels. A name that ends in `*` stands for all that begin so.
    kernels: &'static [&'static str],
}

impl File {
    /// The whole text: what all files share, and the file.
    pub fn source(&self) -> String {
        [COMMON, if self.formats { FORMATS } else { "" }, self.text].concat()
    }
}

macro_rules! files {
    ($($name:literal $formats:literal: $($kernel:literal),+;)*) => {
        /// Every file of kernels.
        pub const FILES: &[File] = &[$(File {
            name: $name,
            text: include_str!(concat!("../kernels/", $name, ".metal")),
            formats: $formats,
            kernels: &[$($kernel),+],
        }),*];
    };
}

files! {
    "rms_norm" false: "rms_norm", "add_rms_norm";
    "norm" false: "group_norm";
    "elements" false: "unary", "binary", "columns", "take", "select_rows", "rope";
    "attend" false: "attend_merge", "attend_f*", "kv_write_*";
    "result" false: "argmax", "copy";
    "linear" true: "linear_*";
    "embed" true: "embed_*";
}

/// The file that has a kernel.
pub fn file_of(kernel: &str) -> Option<&'static File> {
    let is = |name: &&str| name.strip_suffix('*').map_or(kernel == *name, |start| kernel.starts_with(start));
    FILES.iter().find(|f| f.kernels.iter().any(is))
}

/// All kernels in one text, for a compiler that takes one.
pub fn source() -> String {
    let texts = FILES.iter().map(|f| f.text);
    [COMMON, FORMATS].into_iter().chain(texts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_stand_where_the_table_says() {
        for file in FILES {
            for kernel in file.kernels {
                let start = kernel.trim_end_matches('*');
                let stands = file.text.contains(&format!("kernel void {start}("))
                    || file.text.contains(&format!("\"{start}"));
                assert!(stands, "{} has no {kernel}", file.name);
            }
        }
        assert_eq!(file_of("add_rms_norm").map(|f| f.name), Some("rms_norm"));
        assert_eq!(file_of("linear_q4_k_2").map(|f| f.name), Some("linear"));
        assert_eq!(file_of("no_such"), None);
    }
}
