//! RESP bytes to commands and replies to RESP bytes, without I/O.
#![forbid(unsafe_code)]
