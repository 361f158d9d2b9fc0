//! Runs many simulations at once. Workers take one question after the other; the answers are passed
//! on on the caller's thread, in the order of completion.

use std::{
    io,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

/// Answers every question on `jobs` threads (at least one), and hands each answer to `keep` until that
/// fails.
pub(crate) fn answer<Q: Sync, A: Send>(
    jobs: usize,
    questions: &[Q],
    answer: impl Fn(&Q) -> A + Sync,
    keep: &mut dyn FnMut(A) -> io::Result<()>,
) -> io::Result<()> {
    let (next, answer) = (&AtomicUsize::new(0), &answer);
    let (send, receive) = mpsc::channel();
    thread::scope(|scope| {
        let mut workers = 0;
        for _ in 0..jobs.clamp(1, questions.len().max(1)) {
            let send = send.clone();
            // Once the receiver is closed, no further job is started.
            let work = move || {
                while let Some(question) = questions.get(next.fetch_add(1, Ordering::Relaxed))
                    && send.send(answer(question)).is_ok()
                {}
            };
            // Fewer do the same work, only later.
            workers += usize::from(thread::Builder::new().spawn_scoped(scope, work).is_ok());
        }
        if workers == 0 {
            return questions.iter().try_for_each(|q| keep(answer(q)));
        }
        // The workers hold the only senders left, so that the loop ends with them.
        drop(send);
        receive.into_iter().try_for_each(&mut *keep)
    })
}
