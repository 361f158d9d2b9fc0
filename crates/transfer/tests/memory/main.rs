//! Measures how much one session holds, and does, because its peer says so. Each sequence of a
//! lying peer is played against a real end, and the heap is counted at its peak.

use peak_alloc::PeakAlloc;

#[cfg(test)]
mod peer;
#[cfg(test)]
mod sequences;

/// Counts allocations.
#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;
