//! Transfers over a shuffled session in one process.

#[cfg(test)]
mod files;
#[cfg(test)]
mod lanes;
#[cfg(test)]
mod pair;
#[cfg(test)]
mod panics;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod several;
