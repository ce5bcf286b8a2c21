//! What is known of CUDA by heart: signatures, symbol families, types, enums, errors.
