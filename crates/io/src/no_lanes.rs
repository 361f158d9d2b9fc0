//! Control lanes of systems other than Linux: there are none. A protocol that needs one says so when
//! its session or listener starts.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use farhaul_core::{control::Token, time::Instant};
use rustix::fd::{AsFd, BorrowedFd};

use crate::news::News;

/// No value: nothing makes control lanes here.
pub(crate) enum Lanes {}

impl Lanes {
    pub(crate) fn new() -> io::Result<Self> {
        let text = "protocols with a control connection run on Linux only";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    pub(crate) fn listening(_: SocketAddr) -> io::Result<Self> {
        Self::new()
    }

    pub(crate) fn connect(&mut self, _: SocketAddr, _: Token, _: usize) -> io::Result<usize> {
        match *self {}
    }

    pub(crate) const fn refused(&self) -> bool {
        match *self {}
    }

    pub(crate) fn close(&mut self, _: usize) {
        match *self {}
    }

    pub(crate) fn poll(&mut self, _: Instant) -> bool {
        match *self {}
    }

    pub(crate) fn is_late(&self, _: Instant) -> bool {
        match *self {}
    }

    pub(crate) fn next_news(&mut self) -> Option<(usize, News)> {
        match *self {}
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        match *self {}
    }

    pub(crate) fn find(&self, _: Token, _: IpAddr) -> Option<usize> {
        match *self {}
    }

    pub(crate) fn entry(&mut self, _: usize, _: usize) {
        match *self {}
    }

    pub(crate) fn take_received(&mut self, _: usize) -> (Vec<u8>, Option<String>) {
        match *self {}
    }

    pub(crate) fn give_back(&mut self, _: usize, _: Vec<u8>) {
        match *self {}
    }

    pub(crate) fn fill(&mut self, _: usize, _: impl FnMut(usize, &mut Vec<u8>)) {
        match *self {}
    }
}

impl AsFd for Lanes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match *self {}
    }
}
