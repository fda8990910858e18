//! Simulated clusters: sound ones hold, planted bugs are found, the same seed gives the same run, and the
//! checker of histories tells good from bad. Damage on a disk panics nothing.

mod bugs;
mod damage;
mod determinism;
mod linear;
mod sound;
mod transactions;
