//! Runs the checks of every family and format, and prints the page `docs/support.md`, or writes it where a path is given.

use cera_conformance::{Result, support};

fn main() -> Result<()> {
    let page = support()?;
    match std::env::args().nth(1) {
        Some(path) => std::fs::write(path, page)?,
        None => print!("{page}"),
    }
    Ok(())
}
