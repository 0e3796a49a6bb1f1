//! Number formats: E4M3, E8M0, E2M1, NVFP4, bf16. Decode and encode, for the candidate path and the tools.
//! `reference` has decoders of its own and never imports these; a test proves every code equal.
