//! GGUF files: metadata and tensor slices, reader and writer.
