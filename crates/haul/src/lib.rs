//! The flagship protocol: sealed, paced, range-coded feedback over one UDP socket.
