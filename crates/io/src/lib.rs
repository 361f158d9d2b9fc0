//! Real time: threads that own sockets, sessions and applications.
