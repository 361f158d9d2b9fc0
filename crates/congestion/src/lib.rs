//! Congestion laws, one file each.
