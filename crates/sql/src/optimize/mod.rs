//! Optimizer.
