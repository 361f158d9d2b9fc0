//! Wakes a shard from another thread: a [`Waker`] for one shard, a [`Stop`] for as many as watch
//! it. The caller shares with its app whatever the app should look at.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, OnceLock,
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

#[derive(Debug, Default)]
struct Wake {
    /// Descriptor, once there is a shard that can sleep.
    fd: OnceLock<OwnedFd>,
    set: AtomicBool,
}

/// Wakes a shard thread from another thread; its apps are polled. One waker serves one shard.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Wake>);

impl Waker {
    /// A new waker, to be given to a shard.
    pub fn new() -> io::Result<Self> {
        let waker = Self::unbound();
        waker.bind()?;
        Ok(waker)
    }

    /// A waker for a shard that is yet to be; until the shard [binds](Self::bind) it, wakes are
    /// only remembered.
    pub(crate) fn unbound() -> Self {
        Self(Arc::default())
    }

    /// Lets wakes end a shard's sleep from now on.
    pub(crate) fn bind(&self) -> io::Result<()> {
        if self.0.fd.get().is_none() {
            let _bound_meanwhile = self.0.fd.set(event()?);
        }
        Ok(())
    }

    /// Wakes the shard; what the caller wrote before is visible to the apps. Cheap when the shard
    /// has not yet seen the last wake.
    pub fn wake(&self) {
        if !self.0.set.swap(true, Ordering::AcqRel)
            && let Some(fd) = self.0.fd.get()
        {
            signal(fd);
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
        if let Some(fd) = self.0.fd.get() {
            let _empty_already = rustix::io::read(fd, &mut count);
        }
    }

    /// Readable when there was a wake.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.fd.get().map(AsFd::as_fd)
    }
}

#[derive(Debug)]
struct Inner {
    fd: OwnedFd,
    set: AtomicBool,
}

/// Requests shards to end, permanently. Any number of shards may watch one, and setting it takes
/// no lock, so a signal handler may do it.
#[derive(Clone, Debug)]
pub struct Stop(Arc<Inner>);

impl Stop {
    /// A stop that is not set.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Inner {
            fd: event()?,
            set: AtomicBool::new(false),
        })))
    }

    /// Sets the stop and wakes every shard that watches.
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
    fn a_wake_before_there_is_a_shard_is_not_lost() {
        let waker = Waker::unbound();
        waker.clone().wake();
        assert!(waker.fd().is_none());
        waker.bind().unwrap();
        waker.bind().unwrap();
        assert!(waker.fd().is_some() && waker.take() && !waker.take());
    }

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
