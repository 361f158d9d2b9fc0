//! Scales a test: little work in the gate, which runs for every change, and much in `cargo xtask
//! soak`.
//!
//! Invariant: both forms assert; where few seeds or seconds need another bound, a comment says how it follows.

/// `gate`, or `soak` where the environment has `FARHAUL_SOAK` and it is not `0`.
pub fn scale<T>(gate: T, soak: T) -> T {
    let is_soak = std::env::var_os("FARHAUL_SOAK").is_some_and(|value| value != "0");
    if is_soak { soak } else { gate }
}
