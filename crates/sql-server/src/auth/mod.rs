//! Who a client is: SCRAM-SHA-256 against the verifier of its role.

pub mod scram;
