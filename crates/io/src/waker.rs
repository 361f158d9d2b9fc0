//! How does another thread reach a shard? By waking it: a [`Waker`] for one shard, a [`Stop`] for as
//! many as watch it. What there is to see lies in whatever the caller shares with its app.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::event::{EventfdFlags, eventfd};

fn event() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Makes the descriptor readable.
fn signal(fd: &OwnedFd) {
    // The write fails only when the counter is full, and then the reader is woken anyway.
    let _full = rustix::io::write(fd, &1_u64.to_ne_bytes());
}

#[derive(Debug)]
struct Inner {
    fd: OwnedFd,
    set: AtomicBool,
}

/// Wakes a shard thread from another thread; its apps are polled. One waker serves one shard.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Inner>);

impl Waker {
    /// A new waker, to be given to a shard.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Inner {
            fd: event()?,
            set: AtomicBool::new(false),
        })))
    }

    /// Wakes the shard; what the caller wrote before is visible to the apps. Cheap when the shard
    /// has not yet seen the last wake.
    pub fn wake(&self) {
        if !self.0.set.swap(true, Ordering::AcqRel) {
            signal(&self.0.fd);
        }
    }

    /// Takes the wake, if there was one. The descriptor may stay, or become, readable after this;
    /// that costs one empty turn and no wake is lost.
    pub(crate) fn take(&self) -> bool {
        self.0.set.load(Ordering::Relaxed) && self.0.set.swap(false, Ordering::AcqRel)
    }

    /// Makes the descriptor unreadable; a wake that has not been taken is still to be taken.
    pub(crate) fn empty(&self) {
        let mut count = [0; 8];
        let _empty_already = rustix::io::read(&self.0.fd, &mut count);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

/// Asks shards to end, once and for all. Any number of shards may watch one, and setting it takes
/// no lock, so a signal handler may do it.
#[derive(Clone, Debug)]
pub struct Stop(Arc<Inner>);

impl Stop {
    /// Not set.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Inner {
            fd: event()?,
            set: AtomicBool::new(false),
        })))
    }

    /// Sets it and wakes every shard that watches.
    pub fn set(&self) {
        self.0.set.store(true, Ordering::Release);
        // Never read, so it stays readable for all.
        signal(&self.0.fd);
    }

    /// True once [`Self::set`] was called.
    pub fn is_set(&self) -> bool {
        self.0.set.load(Ordering::Acquire)
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakes_are_taken_once_and_stops_stay() {
        let waker = Waker::new().unwrap();
        assert!(!waker.take());
        waker.wake();
        waker.clone().wake();
        assert!(waker.take());
        assert!(!waker.take());
        let stop = Stop::new().unwrap();
        stop.clone().set();
        assert!(stop.is_set());
    }
}
