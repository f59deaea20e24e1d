//! Any bytes as a GGUF file: opened, planned, its vocabulary read, its first tensors decoded.
#![no_main]

use cera_gguf::Gguf;
use cera_plan::fuse;
use cera_token::{Shown, Special, Tokenizer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(file) = Gguf::from_bytes(data.to_vec()) else { return };
    for tensor in file.tensors().iter().take(4) {
        let bytes = file.tensor_bytes(tensor);
        let numbers: u64 = tensor.dims.iter().product();
        // The reader has compared the product with the bytes that are there.
        let mut out = vec![0.0; usize::try_from(numbers).expect("fits the file")];
        if tensor.ty.codec().is_some() {
            cera_quant::decode(tensor.ty, bytes, &mut out).expect("whole blocks, as the reader has checked");
        }
    }
    if let Ok(model) = cera_arch::build(&file) {
        let _ = fuse(model.plan, &|_| true);
    }
    let Ok(tokenizer) = Tokenizer::from_gguf(file.metadata(), None) else { return };
    if let Ok(ids) = tokenizer.encode_whole("A <s>text</s>, 1234 wörds\n\n  and 日本", Special::Parse) {
        tokenizer.decode(&ids, Shown::All).expect("ids that it gave itself");
    }
});
