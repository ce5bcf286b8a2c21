//! What a run says, and the formats it is said in.
