//! Searches the largest datagram that the path carries. The search starts at what every path must
//! carry. As soon as packets can be acknowledged, it probes every likely size at once, each twice
//! (after RFC 8899). The search is parallel because one step by step costs an rtt a step. The
//! largest size that is acknowledged counts. After only timeouts in a row with large datagrams in
//! use, the base is used until something gets through again.

use std::{collections::VecDeque, time::Duration};

use farhaul_core::time::Instant;

use crate::wire::BASE_DATAGRAM;

/// UDP payloads of jumbo frames, FDDI, Ethernet and tunnels over it, IPv6 and IPv4.
const LIKELY: [usize; 8] = [8_972, 8_952, 4_432, 2_976, 1_472, 1_452, 1_432, 1_392];
/// Copies of each probe.
const COPIES: usize = 2;
/// Pause before larger sizes are tried again (RFC 8899 §5.1.1).
const RAISE: Duration = Duration::from_mins(10);
/// Pause after a search in which nothing got through at all, which may have met the end of the
/// handshake or a blackout. The pause is four times as long after each in a row.
const AGAIN: Duration = Duration::from_secs(1);
/// Timeouts in a row that make large datagrams suspect; of a remembered size that nothing confirmed, the first does.
const SUSPECT: u32 = 3;

/// The search.
#[derive(Debug)]
pub(crate) struct Mtu {
    size: usize,
    /// Sizes to try, largest first.
    candidates: Vec<usize>,
    queue: VecDeque<usize>,
    flying: Vec<(u64, usize)>,
    raise_at: Option<Instant>,
    /// True if an earlier connection used the size; nothing of it was acknowledged so far.
    remembered: bool,
    /// Pause after a search without any success.
    again: Duration,
    fallen: bool,
}

impl Mtu {
    /// A search that knows nothing but the IP MTU of the way out, if that.
    pub(crate) fn new(interface: Option<u32>, is_v4: bool, cap: u32) -> Self {
        let cap = usize::try_from(cap).unwrap_or(usize::MAX);
        let headers = if is_v4 { 28 } else { 48 };
        let interface = interface
            .and_then(|mtu| usize::try_from(mtu).ok())
            .map(|mtu| mtu.saturating_sub(headers));
        let mut this = Self {
            size: BASE_DATAGRAM,
            candidates: LIKELY
                .into_iter()
                .chain(interface)
                .chain([cap.min(interface.unwrap_or(0))])
                .collect(),
            queue: VecDeque::new(),
            flying: Vec::new(),
            raise_at: None,
            remembered: false,
            again: AGAIN,
            fallen: false,
        };
        let most = interface.unwrap_or(usize::MAX).max(BASE_DATAGRAM);
        this.limit(most.min(cap));
        this
    }

    /// Lets the search try nothing above `cap`.
    pub(crate) fn limit(&mut self, cap: usize) {
        self.candidates.retain(|c| *c > BASE_DATAGRAM && *c <= cap);
        self.candidates.sort_unstable_by(|a, b| b.cmp(a));
        self.candidates.dedup();
    }

    /// The UDP payload of a full datagram.
    pub(crate) const fn datagram(&self) -> usize {
        self.size
    }

    /// Tries everything above the current size.
    pub(crate) fn search(&mut self) {
        self.flying.clear();
        self.queue.clear();
        self.raise_at = None;
        for _ in 0..COPIES {
            let larger = self.candidates.iter().filter(|c| **c > self.size);
            self.queue.extend(larger);
        }
    }

    /// An earlier connection over this path used this size: so does this one, until all probes of it and above are lost,
    /// or a timeout.
    pub(crate) fn resume(&mut self, size: usize) {
        if self.candidates.contains(&size) {
            self.size = size;
            self.queue.retain(|s| *s >= size);
            self.remembered = true;
        }
    }

    /// The size of the next probe.
    pub(crate) fn next_probe(&mut self) -> Option<usize> {
        self.queue.pop_front()
    }

    /// A probe of `size` left as packet `number`.
    pub(crate) fn probed(&mut self, number: u64, size: usize) {
        self.flying.push((number, size));
    }

    /// Takes the result of a probe; true if the size changed.
    pub(crate) fn on_result(&mut self, now: Instant, number: u64, acked: bool) -> bool {
        let Some(at) = self.flying.iter().position(|(n, _)| *n == number) else {
            return false;
        };
        let (_, size) = self.flying.swap_remove(at);
        let grown = acked && size > self.size;
        if grown {
            self.size = size;
            self.queue.retain(|s| *s > size);
        }
        self.remembered &= !acked;
        if self.remembered && self.flying.is_empty() && self.queue.is_empty() {
            self.size = BASE_DATAGRAM;
            self.remembered = false;
            self.search();
            return true;
        }
        if self.flying.is_empty() && self.queue.is_empty() {
            let more = self.candidates.first().is_some_and(|c| *c > self.size);
            self.raise_at = more.then(|| now + self.pause());
        }
        grown
    }

    fn pause(&mut self) -> Duration {
        if self.size > BASE_DATAGRAM {
            return RAISE;
        }
        let pause = self.again;
        self.again = (pause * 4).min(RAISE);
        pause
    }

    /// Timeouts in a row; true if the size fell back.
    pub(crate) fn on_timeouts(&mut self, backoff: u32) -> bool {
        let suspect = if self.remembered { 1 } else { SUSPECT };
        if backoff < suspect || self.size == BASE_DATAGRAM {
            return false;
        }
        self.size = BASE_DATAGRAM;
        self.remembered = false;
        self.queue.clear();
        self.flying.clear();
        self.fallen = true;
        true
    }

    /// Feedback was received: after a fallback the search starts again.
    pub(crate) fn on_progress(&mut self) {
        if std::mem::take(&mut self.fallen) {
            self.search();
        }
    }

    /// Another path: nothing is known of it.
    pub(crate) fn reset(&mut self) {
        self.size = BASE_DATAGRAM;
        self.remembered = false;
        self.search();
    }

    /// Time at which larger sizes are tried again.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.raise_at
    }

    pub(crate) fn on_timeout(&mut self, now: Instant) {
        if self.raise_at.is_some_and(|at| at <= now) {
            self.search();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::EPOCH;

    /// Runs a search on a path that carries `mtu`.
    fn settle(mtu: &mut Mtu, carries: usize) -> usize {
        let mut probes = Vec::new();
        while let Some(size) = mtu.next_probe() {
            let number = probes.len() as u64;
            mtu.probed(number, size);
            probes.push(size);
        }
        for (number, size) in probes.into_iter().enumerate() {
            mtu.on_result(NOW, number as u64, size <= carries);
        }
        mtu.datagram()
    }

    fn search(interface: u32, carries: usize) -> usize {
        let mut mtu = Mtu::new(Some(interface), true, 9_216);
        mtu.search();
        settle(&mut mtu, carries)
    }

    #[test]
    fn usual_paths_are_found_in_one_round() {
        assert_eq!(search(1_500, 1_472), 1_472);
        assert_eq!(search(9_000, 8_972), 8_972);
        assert_eq!(search(9_000, 1_472), 1_472);
        assert_eq!(search(1_500, 1_400), 1_392);
        assert_eq!(search(1_500, 1_200), 1_200);
        assert_eq!(search(1_420, 1_392), 1_392);
        assert_eq!(search(65_536, 70_000), 9_216);
        assert_eq!(search(576, 70_000), 1_200);
    }

    #[test]
    fn a_remembered_size_is_used_at_once_and_given_up_with_its_probes() {
        for (carries, settled) in [(8_972, 8_972), (1_472, 1_472), (1_200, 1_200)] {
            let mut mtu = Mtu::new(Some(9_000), true, 9_216);
            mtu.search();
            mtu.resume(8_972);
            assert_eq!(mtu.datagram(), 8_972);
            settle(&mut mtu, carries);
            let expected = if carries == 8_972 { carries } else { 1_200 };
            assert_eq!(mtu.datagram(), expected);
            assert_eq!(settle(&mut mtu, carries), settled);
        }
        let mut mtu = Mtu::new(Some(1_500), true, 9_216);
        mtu.search();
        mtu.resume(8_972);
        assert_eq!(mtu.datagram(), 1_200, "the way out carries less");
    }

    #[test]
    fn a_search_without_any_success_is_repeated_soon_and_then_less_often() {
        let mut mtu = Mtu::new(Some(9_000), true, 9_216);
        mtu.search();
        let mut now = NOW;
        let mut pauses = Vec::new();
        for _ in 0..7 {
            assert_eq!(settle(&mut mtu, 1_200), 1_200);
            let due = mtu.due().expect("larger sizes are tried again");
            pauses.push(due.since(NOW).as_secs());
            now = now.max(due);
            mtu.on_timeout(now);
        }
        assert_eq!(pauses, [1, 4, 16, 64, 256, 600, 600]);
        assert_eq!(settle(&mut mtu, 1_472), 1_472);
        assert_eq!(mtu.due().map(|at| at.since(NOW)), Some(RAISE));
    }

    #[test]
    fn a_black_hole_leads_to_the_base_and_back() {
        let mut mtu = Mtu::new(Some(9_000), true, 9_216);
        mtu.search();
        assert_eq!(settle(&mut mtu, 8_972), 8_972);
        assert!(!mtu.on_timeouts(2));
        assert!(mtu.on_timeouts(3));
        assert_eq!(mtu.datagram(), 1_200);
        assert!(
            mtu.next_probe().is_none(),
            "not before something gets through"
        );
        mtu.on_progress();
        assert_eq!(settle(&mut mtu, 1_472), 1_472);
        let due = mtu.due().unwrap();
        mtu.on_timeout(due);
        assert_eq!(settle(&mut mtu, 8_972), 8_972);
        assert!(mtu.due().is_none(), "nothing larger to look for");
    }
}
