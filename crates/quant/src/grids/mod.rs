//! The grids that ggml's I formats choose points from, one file each.

pub(crate) mod eights_1024;
pub(crate) mod eights_2048;
pub(crate) mod eights_256;
pub(crate) mod eights_512;
pub(crate) mod fours_256;
pub(crate) mod fours_512;
