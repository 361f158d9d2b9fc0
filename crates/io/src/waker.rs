//! Wakes a shard from another thread: a [`Waker`] for one shard, a [`Stop`] for as many as watch
//! it. The caller shares with its app whatever the app should look at.

mod event;

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::fd::{AsFd, BorrowedFd};

use self::event::Event;

#[derive(Debug, Default)]
struct Wake {
    /// Event, once there is a shard that can sleep.
    event: OnceLock<Event>,
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
        if self.0.event.get().is_none() {
            let _bound_meanwhile = self.0.event.set(Event::new()?);
        }
        Ok(())
    }

    /// Wakes the shard; what the caller wrote before is visible to the apps. Cheap when the shard
    /// has not yet seen the last wake.
    pub fn wake(&self) {
        if !self.0.set.swap(true, Ordering::AcqRel)
            && let Some(event) = self.0.event.get()
        {
            event.signal();
        }
    }

    /// Takes the wake, if there was one. The descriptor may stay, or become, readable after this;
    /// that costs one empty turn and no wake is lost.
    pub(crate) fn take(&self) -> bool {
        self.0.set.load(Ordering::Relaxed) && self.0.set.swap(false, Ordering::AcqRel)
    }

    /// Makes the descriptor unreadable; a wake that has not been taken is still to be taken.
    pub(crate) fn empty(&self) {
        if let Some(event) = self.0.event.get() {
            event.empty();
        }
    }

    /// Readable when there was a wake.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.event.get().map(AsFd::as_fd)
    }
}

#[derive(Debug)]
struct Inner {
    event: Event,
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
            event: Event::new()?,
            set: AtomicBool::new(false),
        })))
    }

    /// Sets the stop and wakes every shard that watches.
    pub fn set(&self) {
        self.0.set.store(true, Ordering::Release);
        // Never read, so it stays readable for all.
        self.0.event.signal();
    }

    /// True once [`Self::set`] was called.
    pub fn is_set(&self) -> bool {
        self.0.set.load(Ordering::Acquire)
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
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
