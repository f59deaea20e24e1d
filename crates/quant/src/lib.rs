//! What a block of quantized weights means: one file per format.
