//! Writes a fixture with its matrices in another type, as `tests/encoded.rs` has it, for a peer to run.
//!
//! `encode FIXTURE.gguf TYPE OUT.gguf`

use cera_conformance::{Result, encoded, is_matrix};
use cera_gguf::{Gguf, Writer};
use cera_quant::Type;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [from, name, to] = args.as_slice() else {
        return Err("usage: encode FIXTURE.gguf TYPE OUT.gguf".into());
    };
    let ty = Type::ALL.iter().copied().find(|ty| ty.name() == name).ok_or("no such type")?;
    let file = encoded(&Gguf::open(from)?, |t| Some(ty).filter(|_| is_matrix(t, ty.block_len())))?;
    let mut writer = Writer::new(file.metadata().clone())?;
    for t in file.tensors() {
        writer.tensor(&t.name, t.ty, &t.dims)?;
    }
    let mut body = writer.begin(std::fs::File::create(to)?)?;
    for t in file.tensors() {
        body.write(file.tensor_bytes(t))?;
    }
    body.finish()?;
    Ok(())
}
