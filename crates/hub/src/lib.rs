//! From a model's name to a file on this machine.
