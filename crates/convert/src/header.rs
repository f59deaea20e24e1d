//! What a GGUF file says of itself beside the model: its name, its size, its type, how its makers sample from it.

use cera_gguf::{Metadata, TensorInfo};
use cera_quant::Type;
use serde_json::Value;

/// Writes the keys of a file of these tensors. `folder` is the folder's name, `generation` its `generation_config.json`.
pub(crate) fn write(keys: &mut Metadata, tensors: &[TensorInfo], folder: &str, generation: &Value) {
    keys.insert("general.name", title(folder).as_str());
    keys.insert("general.size_label", size(tensors).as_str());
    sampling(keys, generation);
    keys.insert("general.file_type", file_type(tensors));
    keys.insert("general.quantization_version", 2u32);
}

/// A folder's name as a title.
fn title(folder: &str) -> String {
    let words = folder.replace('-', " ");
    let words = words.split_whitespace().map(|word| {
        let version = word.strip_prefix('v').unwrap_or(word).starts_with(|c: char| c.is_ascii_digit());
        let lower = word.chars().any(char::is_lowercase) && !word.chars().any(char::is_uppercase);
        if !lower || version {
            return word.to_owned();
        }
        // Letters that follow none are capitals, as Python's `title` has it.
        let mut behind = false;
        let capital = |c: char| {
            let first = !std::mem::replace(&mut behind, c.is_alphabetic());
            if first { c.to_uppercase().collect() } else { c.to_string() }
        };
        word.chars().map(capital).collect()
    });
    words.collect::<Vec<String>>().join(" ")
}

/// How many weights, as names of models have it: `1.5B`, and `8x7B` of a mixture of experts.
fn size(tensors: &[TensorInfo]) -> String {
    let (mut shared, mut expert, mut experts, mut mixtures) = (0.0, 0.0, 0u64, 0u64);
    for t in tensors {
        let numbers = t.cols() as f64 * t.rows() as f64;
        match t.dims.as_slice() {
            [_, _, count, ..] if t.name.contains("_exps.") => {
                expert += numbers / *count as f64;
                experts = experts.saturating_add(*count);
                mixtures += 1;
            }
            _ => shared += numbers,
        }
    }
    match experts.checked_div(mixtures) {
        Some(count) => format!("{count}x{}", rounded(shared + expert)),
        None => rounded(shared),
    }
}

/// A count in two digits or more.
fn rounded(count: f64) -> String {
    let units = [(1e12, "T"), (1e9, "B"), (1e6, "M")];
    let (unit, suffix) = units.into_iter().find(|(unit, _)| count > *unit).unwrap_or((1e3, "K"));
    let scaled = count / unit;
    let digits = if scaled.round_ties_even() < 1.0 { 0 } else { format!("{scaled:.0}").len() };
    format!("{scaled:.*}{suffix}", 2usize.saturating_sub(digits))
}

/// ggml's number for the type that most weights have.
fn file_type(tensors: &[TensorInfo]) -> u32 {
    const TYPES: [(Type, u32); 4] = [(Type::F32, 0), (Type::F16, 1), (Type::BF16, 32), (Type::Q8_0, 7)];
    let matrices = || tensors.iter().filter(|t| t.dims.len() > 1);
    let weights = |ty: Type| -> f64 {
        matrices().filter(|t| t.ty == ty).map(|t| t.cols() as f64 * t.rows() as f64).sum()
    };
    TYPES.into_iter().max_by(|a, b| weights(a.0).total_cmp(&weights(b.0))).map_or(0, |(_, number)| number)
}

/// What the makers of the model advise.
fn sampling(keys: &mut Metadata, generation: &Value) {
    const COUNTS: [(&str, &str); 3] =
        [("top_k", "top_k"), ("penalty_last_n", "penalty_last_n"), ("mirostat", "mirostat")];
    const NUMBERS: [(&str, &str); 9] = [
        ("top_p", "top_p"),
        ("min_p", "min_p"),
        ("xtc_probability", "xtc_probability"),
        ("xtc_threshold", "xtc_threshold"),
        ("temperature", "temp"),
        ("repetition_penalty", "penalty_repeat"),
        ("penalty_repeat", "penalty_repeat"),
        ("mirostat_tau", "mirostat_tau"),
        ("mirostat_eta", "mirostat_eta"),
    ];
    if let Some(sequence) = generation.get("sequence").and_then(Value::as_str) {
        keys.insert("general.sampling.sequence", sequence);
    }
    for (name, key) in COUNTS {
        let count = generation.get(name).and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok());
        if let Some(count) = count {
            keys.insert(format!("general.sampling.{key}"), count);
        }
    }
    for (name, key) in NUMBERS {
        if let Some(number) = generation.get(name).and_then(Value::as_f64) {
            keys.insert(format!("general.sampling.{key}"), number as f32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_titles() {
        // What llama.cpp's converter makes of these.
        let cases = [
            ("tiny-llama3rope", "Tiny Llama3Rope"),
            ("SmolLM2-135M-instruct", "SmolLM2 135M Instruct"),
            ("qwen2.5-0.5b-v0.3", "Qwen2.5 0.5b v0.3"),
            ("", ""),
        ];
        for (folder, name) in cases {
            assert_eq!(title(folder), name);
        }
    }

    #[test]
    fn sizes_have_two_digits() {
        let cases =
            [(139_968.0, "140K"), (1.5e9, "1.5B"), (7.24e9, "7.2B"), (135e6, "135M"), (420.0, "0.42K")];
        for (count, shown) in cases {
            assert_eq!(rounded(count), shown);
        }
    }
}
