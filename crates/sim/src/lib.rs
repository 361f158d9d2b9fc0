//! Discrete-event simulation of sessions over modelled links in virtual time.
