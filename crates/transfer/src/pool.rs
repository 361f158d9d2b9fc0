//! Who does the work that must not hold up the shard thread? A few threads that take jobs from one
//! queue and answer on another: hashing, opening, reading small files, renaming.
//!
//! - Dropping the pool never waits: what is queued is abandoned, a running job ends by itself.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
    mpsc,
};

use crate::pages::Pages;

/// Work for a pool.
pub(crate) trait Job: Send + 'static {
    /// Its result.
    type Done: Send + 'static;
    /// Does it; `scratch` is the thread's own and keeps its capacity.
    fn run(self, scratch: &mut Pages) -> Self::Done;
}

/// Called from a worker when there is a result to fetch.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// Threads at work.
pub(crate) struct Pool<J: Job> {
    jobs: mpsc::Sender<J>,
    done: mpsc::Receiver<J::Done>,
    outstanding: usize,
    stop: Arc<AtomicBool>,
    threads: usize,
}

impl<J: Job> Pool<J> {
    pub(crate) fn new(name: &str, wake: Option<&Wake>) -> std::io::Result<Self> {
        let threads = std::thread::available_parallelism()
            .map_or(1, usize::from)
            .clamp(1, 4);
        let (jobs, queue) = mpsc::channel::<J>();
        let (answers, done) = mpsc::channel();
        let queue = Arc::new(Mutex::new(queue));
        let stop = Arc::new(AtomicBool::new(false));
        for i in 0..threads {
            let queue = Arc::clone(&queue);
            let answers = answers.clone();
            let stop = Arc::clone(&stop);
            let wake = wake.cloned();
            std::thread::Builder::new()
                .name(format!("{name}-{i}"))
                .spawn(move || {
                    let mut scratch = Pages::default();
                    loop {
                        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                        let Ok(job) = job else { return };
                        if stop.load(Ordering::Relaxed)
                            || answers.send(job.run(&mut scratch)).is_err()
                        {
                            return;
                        }
                        if let Some(wake) = &wake {
                            wake();
                        }
                    }
                })?;
        }
        Ok(Self {
            jobs,
            done,
            outstanding: 0,
            stop,
            threads,
        })
    }

    /// Queues a job.
    pub(crate) fn push(&mut self, job: J) {
        // The threads hold the other end for as long as the pool lives.
        if self.jobs.send(job).is_ok() {
            self.outstanding += 1;
        }
    }

    /// A result, if there is one.
    pub(crate) fn pop(&mut self) -> Option<J::Done> {
        let done = self.done.try_recv().ok()?;
        self.outstanding -= 1;
        Some(done)
    }

    /// Waits for a result; `None` if no job is out, or nobody is left to do it.
    pub(crate) fn wait(&mut self) -> Option<J::Done> {
        if self.outstanding == 0 {
            return None;
        }
        let done = self.done.recv().ok()?;
        self.outstanding -= 1;
        Some(done)
    }

    /// Jobs given and not answered.
    pub(crate) const fn outstanding(&self) -> usize {
        self.outstanding
    }

    pub(crate) const fn threads(&self) -> usize {
        self.threads
    }
}

impl<J: Job> Drop for Pool<J> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
