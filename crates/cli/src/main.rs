//! The `cera` program.

fn main() {}
