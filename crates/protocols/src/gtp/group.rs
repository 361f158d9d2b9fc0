//! Shares the rate that a host can take among all flows to the host. The shares are max-min fair: a
//! flow that wants no more than an equal part gets that part. The others get equal parts of the
//! rest. No flow is given a rate at which another still sends. A rate is free once the other was
//! ordered to be slower, and the slower rate has had time to arrive.
//!
//! Invariants: all grants together are never more than the capacity. No share is less than the
//! lower of the demand and an equal part. Locked once for each visit of a flow, a few times in an
//! rtt, never for a packet.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use farhaul_core::{pull::LEAST_RATE, time::Instant, units::Rate};

/// A demand that differs by more is a reason to share anew.
const NEWS: f64 = 0.05;
/// Otherwise shares are computed anew every this many of the longest rtt.
const ROUNDS: u32 = 4;

/// The max-min fair shares of `capacity` for these demands (water-filling).
// spec: gtp §1.2
pub fn shares(capacity: Rate, demands: &[Rate]) -> Vec<Rate> {
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by_key(|i| demands[*i]);
    let (mut left, mut flows) = (capacity.bps(), demands.len() as u64);
    let mut shares = vec![Rate::ZERO; demands.len()];
    for i in order {
        let share = demands[i].min(Rate::from_bps(left / flows));
        shares[i] = share;
        left -= share.bps();
        flows -= 1;
    }
    shares
}

#[derive(Debug)]
struct Flow {
    demand: Rate,
    share: Rate,
    /// Rate at which the flow may arrive.
    held: Rate,
    /// Time from which on the flow arrives at no more than this rate.
    lower: Option<(Instant, Rate)>,
    rtt: Duration,
}

#[derive(Debug)]
struct State {
    capacity: Rate,
    flows: BTreeMap<u64, Flow>,
    next: u64,
    shared: Instant,
    stale: bool,
}

impl State {
    /// Shares anew, if there is a reason.
    fn share(&mut self, now: Instant) {
        let longest = self.flows.values().map(|flow| flow.rtt).max();
        let again = self.shared + longest.unwrap_or_default() * ROUNDS;
        if !self.stale && now < again {
            return;
        }
        let demands: Vec<_> = self.flows.values().map(|flow| flow.demand).collect();
        let shares = shares(self.capacity, &demands);
        for (flow, share) in self.flows.values_mut().zip(shares) {
            flow.share = share;
        }
        (self.shared, self.stale) = (now, false);
    }

    /// Rate at which the flow `id` may be sent from now on.
    fn grant(&mut self, now: Instant, id: u64) -> Rate {
        let mut others = 0;
        for (other, flow) in &mut self.flows {
            if let Some((_, rate)) = flow.lower.take_if(|(at, _)| *at <= now) {
                flow.held = rate;
            }
            if *other != id {
                others += flow.held.bps();
            }
        }
        let free = self.capacity.bps().saturating_sub(others);
        let Some(flow) = self.flows.get_mut(&id) else {
            return Rate::ZERO;
        };
        let given = flow.share.min(Rate::from_bps(free));
        if given >= flow.held {
            (flow.held, flow.lower) = (given, None);
        } else {
            // What left before is on its way for an rtt.
            flow.lower = Some((now + flow.rtt, given));
        }
        given
    }
}

/// Capacity shared by the sessions that receive at one host.
#[derive(Clone, Debug)]
pub struct Group(Arc<Mutex<State>>);

impl Default for Group {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State {
            capacity: Rate::gbit(1),
            flows: BTreeMap::new(),
            next: 0,
            shared: Instant::EPOCH,
            stale: false,
        })))
    }
}

impl Group {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here is left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the capacity of the host.
    pub fn set_capacity(&self, capacity: Rate) {
        let mut state = self.lock();
        state.stale |= state.capacity != capacity;
        state.capacity = capacity;
    }

    /// True if not every flow can have the least rate that is of use.
    pub(super) fn is_crowded(&self) -> bool {
        let state = self.lock();
        state.capacity.bps() / (state.flows.len().max(1) as u64) < LEAST_RATE.bps()
    }

    /// A flow begins, which wants all there is until it is known better.
    pub(super) fn join(&self, rtt: Duration) -> Member {
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        state.stale = true;
        let flow = Flow {
            demand: state.capacity,
            share: Rate::ZERO,
            held: Rate::ZERO,
            lower: None,
            rtt,
        };
        state.flows.insert(id, flow);
        drop(state);
        Member {
            group: self.clone(),
            id,
        }
    }
}

/// A flow's place in its group, until it is dropped.
#[derive(Debug)]
pub(super) struct Member {
    group: Group,
    id: u64,
}

impl Member {
    /// Rate at which the flow may be sent from now on, and the rate that the host takes in.
    /// `demand` is the flow's demand, as far as is known by now.
    pub(super) fn visit(&self, now: Instant, demand: Option<Rate>) -> (Rate, Rate) {
        let mut state = self.group.lock();
        let capacity = state.capacity;
        let flow = state.flows.get_mut(&self.id);
        if let (Some(flow), Some(demand)) = (flow, demand) {
            let demand = demand.clamp(LEAST_RATE, capacity);
            if (demand.as_f64() / flow.demand.as_f64() - 1.0).abs() > NEWS {
                flow.demand = demand;
                state.stale = true;
            }
        }
        state.share(now);
        (state.grant(now, self.id), capacity)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = self.group.lock();
        state.flows.remove(&self.id);
        state.stale = true;
    }
}

#[cfg(test)]
mod tests;
