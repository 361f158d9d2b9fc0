//! Finds congestion laws: in the registry, by name, or in the program that embeds this crate.

use std::{fmt, sync::Arc};

use farhaul_congestion::{Law as Registered, MakeReceiver, laws, lookup};
use farhaul_core::congestion::{CongestionController, ReceiverLaw};

type MakeLaw = dyn Fn() -> Box<dyn CongestionController> + Send + Sync;

/// Makes the sending half of every session.
#[derive(Clone)]
pub(crate) struct Law(Arc<MakeLaw>);

impl Law {
    pub(crate) fn new(
        make: impl Fn() -> Box<dyn CongestionController> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(make))
    }

    pub(crate) fn make(&self) -> Box<dyn CongestionController> {
        (self.0)()
    }
}

/// The receiving halves that a peer's law may ask for.
#[derive(Clone, Default)]
pub(crate) struct Receivers(Arc<Vec<(&'static str, Box<MakeReceiver>)>>);

impl Receivers {
    /// Receiving halves of the registry's laws; of laws that need routers only where there are
    /// some.
    pub(crate) fn registered(routers: bool) -> Self {
        let needs = |law: &Registered| lookup(law.name).is_ok_and(|law| law.needs_routers());
        let laws = laws().iter().filter(|law| law.receiver.is_some());
        let offered = laws.filter(|law| routers || !needs(law));
        let list = offered.filter_map(|law| law.receiver.map(|group| (law.name, group())));
        Self(Arc::new(list.collect()))
    }

    /// Adds a receiving half. Sessions that exist keep what they had.
    ///
    /// # Panics
    /// If sessions already share the list: receiving halves are added before the first.
    pub(crate) fn add(
        &mut self,
        name: &'static str,
        make: impl Fn() -> Box<dyn ReceiverLaw> + Send + Sync + 'static,
    ) {
        let list = Arc::get_mut(&mut self.0);
        let list = list.expect("receiving halves are added before the first session");
        list.push((name, Box::new(make)));
    }

    pub(crate) fn make(&self, name: &str) -> Option<Box<dyn ReceiverLaw>> {
        let (_, make) = self.0.iter().find(|(known, _)| *known == name)?;
        Some(make())
    }
}

impl fmt::Debug for Receivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}
