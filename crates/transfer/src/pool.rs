//! Runs the work that must not hold up the shard thread. A few threads take jobs from one queue and
//! answer on another: hashing, opening, reading small files, renaming.
//!
//! - Dropping the pool never waits: queued jobs are abandoned, and a running job is cancelled.
//!   Values passed to [`keep`](Pool::keep) are kept until the last job is over.
//! - Every job is answered: one that panics by [`Broken`], which ends its transfer.

use std::{
    any::Any,
    collections::{BTreeMap, VecDeque},
    io,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use farhaul_core::time::Instant;

use crate::{
    error::TransferError,
    host::{Host, VirtualTime},
    pages::Pages,
    wire::Exit,
};

/// Poll interval of workers when the session is not woken.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Workers of a session by itself, if there are as many cores.
const THREADS: usize = 4;
/// Workers in virtual time: as many on every machine.
const VIRTUAL: usize = 2;

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Work for a pool.
pub(crate) trait Job: Send + 'static {
    /// Result of the job.
    type Done: Send + 'static;
    /// Describes the job, for the case that it breaks.
    fn task(&self) -> Task;
    /// Does the job; `scratch` is the thread's own and keeps its capacity. A long job checks
    /// periodically whether `stop` is set.
    fn run(self, scratch: &mut Pages, stop: &Stop) -> Self::Done;
}

/// Description of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    /// Activity as text, to follow "while".
    pub(crate) doing: &'static str,
    /// Entry of the job, or the first of its entries.
    pub(crate) file: Option<u64>,
}

impl Task {
    pub(crate) const fn new(doing: &'static str, file: Option<u64>) -> Self {
        Self { doing, file }
    }
}

/// A job that panicked, or that no thread was left to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) task: Task,
    why: String,
}

impl Broken {
    /// Error of the transfer for the broken job; `name` is that of the task's file.
    pub(crate) fn error(&self, name: &str) -> TransferError {
        let space = if name.is_empty() { "" } else { " " };
        internal(&format!("{}{space}{name}", self.task.doing), &self.why)
    }
}

/// A fault of ours, met while `doing` something.
pub(crate) fn internal(doing: &str, why: &str) -> TransferError {
    let text = format!("internal error while {doing}: {why}");
    TransferError::new(Exit::Internal, text)
        .fix("this is a fault of farhaul: report it, with this line; the same command continues")
}

/// The message of a panic.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a text").to_string()
}

#[derive(Debug, Default)]
struct Shared {
    stopped: AtomicBool,
    steps: AtomicU64,
    syncing: AtomicUsize,
}

/// Cancels a job, and reports its progress to those who wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<Shared>);

impl Stop {
    pub(crate) fn set(&self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.stopped.load(Ordering::Relaxed)
    }

    /// A job that lasts has done a part.
    pub(crate) fn step(&self) {
        self.0.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for a sync of the disk, whose progress cannot be observed.
    pub(crate) fn sync<T>(&self, sync: impl FnOnce() -> T) -> T {
        self.0.syncing.fetch_add(1, Ordering::Relaxed);
        let done = sync();
        self.0.syncing.fetch_sub(1, Ordering::Relaxed);
        self.step();
        done
    }

    /// Fails once the job is to stop.
    pub(crate) fn check(&self) -> io::Result<()> {
        self.step();
        if self.is_set() {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        Ok(())
    }
}

/// Called from a worker when there is a result to fetch.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// Handle to a value that must not end before the jobs that need it.
pub(crate) type Keep = Arc<dyn Any + Send + Sync>;

type Answer<J> = Result<<J as Job>::Done, Broken>;

/// A job on its way to a thread.
struct Queued<J> {
    job: J,
    keep: Option<Keep>,
}

/// Workers of a pool: threads, or virtual ones.
enum Crew<J: Job> {
    Threads {
        jobs: mpsc::Sender<Queued<J>>,
        done: mpsc::Receiver<Answer<J>>,
        /// State that threads share, as long as there are any.
        workers: Weak<Workers<J>>,
    },
    Virtual(Virtual<J>),
}

/// Workers in virtual time: a job is done where it is begun. Its answer is there once its calls on
/// the disk have had their time.
struct Virtual<J: Job> {
    time: Arc<VirtualTime>,
    queued: VecDeque<Queued<J>>,
    /// Answers by the time at which they are due, then by when their jobs were begun.
    answers: BTreeMap<(Instant, u64), Answer<J>>,
    begun: u64,
    scratch: Pages,
}

impl<J: Job> Virtual<J> {
    /// Begins queued jobs, as many as there are idle workers.
    fn begin(&mut self, stop: &Stop) {
        while self.answers.len() < VIRTUAL
            && let Some(Queued { job, keep }) = self.queued.pop_front()
        {
            let run = || perform(job, &mut self.scratch, stop);
            let (answer, took) = self.time.measure(run);
            drop(keep);
            self.begun += 1;
            let due = self.time.now() + took;
            self.answers.insert((due, self.begun), answer);
        }
    }

    fn pop(&mut self, stop: &Stop) -> Option<Answer<J>> {
        let now = self.time.now();
        let first = self.answers.first_entry().filter(|e| e.key().0 <= now)?;
        let answer = first.remove();
        self.begin(stop);
        Some(answer)
    }
}

/// Does a job. If the job panics, its transfer ends, and nothing that it left half-done is used
/// again.
fn perform<J: Job>(job: J, scratch: &mut Pages, stop: &Stop) -> Answer<J> {
    let task = job.task();
    panic::catch_unwind(AssertUnwindSafe(|| job.run(scratch, stop))).map_err(|payload| {
        *scratch = Pages::default();
        let why = panic_text(&*payload);
        Broken { task, why }
    })
}

/// Worker threads, or their model in virtual time.
pub(crate) struct Pool<J: Job> {
    crew: Crew<J>,
    outstanding: usize,
    /// A job that could not be handed over, because no thread is left.
    lost: Option<Task>,
    keep: Option<Keep>,
    stop: Stop,
    threads: usize,
}

impl<J: Job> Pool<J> {
    pub(crate) fn new(name: &str, host: &Host) -> io::Result<Self> {
        if let Some(simulated) = &host.simulated {
            let crew = Crew::Virtual(Virtual {
                time: Arc::clone(&simulated.time),
                queued: VecDeque::new(),
                answers: BTreeMap::new(),
                begun: 0,
                scratch: Pages::default(),
            });
            return Ok(Self::of(crew, VIRTUAL, Stop::default()));
        }
        let threads = cores().clamp(1, THREADS);
        let (jobs, queue) = mpsc::channel();
        let (answers, done) = mpsc::channel();
        let stop = Stop::default();
        let workers = Arc::new(Workers {
            name: name.to_owned(),
            queue: Mutex::new(queue),
            answers,
            stop: stop.clone(),
            wake: host.wake.clone(),
        });
        for i in 0..threads {
            Workers::spawn(&workers, i)?;
        }
        let workers = Arc::downgrade(&workers);
        Ok(Self::of(
            Crew::Threads {
                jobs,
                done,
                workers,
            },
            threads,
            stop,
        ))
    }

    /// Makes at least one thread for each of so many parallel sessions.
    pub(crate) fn grow(&mut self, lanes: u32) {
        let wanted = usize::try_from(lanes).unwrap_or(THREADS);
        let Crew::Threads { workers, .. } = &self.crew else {
            return;
        };
        // Fewer do the same work, only later.
        while self.threads < wanted
            && let Some(workers) = workers.upgrade()
            && Workers::spawn(&workers, self.threads).is_ok()
        {
            self.threads += 1;
        }
    }

    const fn of(crew: Crew<J>, threads: usize, stop: Stop) -> Self {
        Self {
            crew,
            outstanding: 0,
            lost: None,
            keep: None,
            stop,
            threads,
        }
    }

    /// Keeps `keep` alive from here on until the last job is over, also after the pool.
    pub(crate) fn keep(&mut self, keep: Keep) {
        self.keep = Some(keep);
    }

    /// Queues a job.
    pub(crate) fn push(&mut self, job: J) {
        let task = job.task();
        let keep = self.keep.clone();
        match &mut self.crew {
            Crew::Virtual(crew) => {
                crew.queued.push_back(Queued { job, keep });
                crew.begin(&self.stop);
            }
            Crew::Threads { jobs, .. } => {
                if jobs.send(Queued { job, keep }).is_err() {
                    self.lost = Some(task);
                    return;
                }
            }
        }
        self.outstanding += 1;
    }

    /// Time to poll for an answer, if one is expected.
    pub(crate) fn next_answer(&self, now: Instant) -> Option<Instant> {
        match &self.crew {
            Crew::Virtual(crew) => crew.answers.first_key_value().map(|((due, _), _)| *due),
            Crew::Threads { .. } => (self.outstanding > 0).then(|| now + LOOK_AGAIN),
        }
    }

    /// A result, if there is one.
    pub(crate) fn pop(&mut self) -> Option<Answer<J>> {
        let done = match &mut self.crew {
            Crew::Virtual(crew) => crew.pop(&self.stop)?,
            Crew::Threads { done, .. } => match done.try_recv() {
                Ok(done) => done,
                Err(mpsc::TryRecvError::Empty) => return self.take_lost(),
                Err(mpsc::TryRecvError::Disconnected) => return self.nobody(),
            },
        };
        self.outstanding = self.outstanding.saturating_sub(1);
        Some(done)
    }

    /// Waits for a result; `None` if no job is out.
    #[cfg(test)]
    pub(crate) fn wait(&mut self) -> Option<Answer<J>> {
        if self.outstanding == 0 {
            return self.take_lost();
        }
        let Crew::Threads { done, .. } = &self.crew else {
            return self.pop();
        };
        let Ok(done) = done.recv() else {
            return self.nobody();
        };
        self.outstanding -= 1;
        Some(done)
    }

    fn take_lost(&mut self) -> Option<Answer<J>> {
        let task = self.lost.take()?;
        let why = "no worker is left".into();
        Some(Err(Broken { task, why }))
    }

    /// Answer for the case that all threads have ended.
    fn nobody(&mut self) -> Option<Answer<J>> {
        if self.outstanding > 0 {
            self.outstanding = 0;
            self.lost
                .get_or_insert(Task::new("waiting for a worker", None));
        }
        self.take_lost()
    }

    /// Jobs given and not answered.
    pub(crate) const fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Grows while jobs that last get on.
    pub(crate) fn steps(&self) -> u64 {
        self.stop.0.steps.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) const fn stop(&self) -> &Stop {
        &self.stop
    }

    /// True if some job waits for a sync.
    pub(crate) fn is_syncing(&self) -> bool {
        self.stop.0.syncing.load(Ordering::Relaxed) > 0
    }

    pub(crate) const fn threads(&self) -> usize {
        self.threads
    }
}

impl<J: Job> Drop for Pool<J> {
    fn drop(&mut self) {
        self.stop.set();
    }
}

/// State that threads share.
struct Workers<J: Job> {
    name: String,
    queue: Mutex<mpsc::Receiver<Queued<J>>>,
    answers: mpsc::Sender<Answer<J>>,
    stop: Stop,
    wake: Option<Wake>,
}

impl<J: Job> Workers<J> {
    /// Starts a thread.
    fn spawn(workers: &Arc<Self>, number: usize) -> io::Result<()> {
        let workers = Arc::clone(workers);
        std::thread::Builder::new()
            .name(format!("{}-{number}", workers.name))
            .spawn(move || workers.work())
            .map(drop)
    }

    fn work(&self) {
        let mut scratch = Pages::default();
        loop {
            let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let next = queue.recv();
            drop(queue);
            let Ok(Queued { job, keep }) = next else {
                return;
            };
            if self.stop.is_set() {
                return;
            }
            let task = job.task();
            let answer = perform(job, &mut scratch, &self.stop);
            drop(keep);
            if self.answers.send(answer).is_err() {
                return;
            }
            let wake = || self.wake.as_ref().inspect(|wake| wake());
            if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(wake)) {
                let why = panic_text(&*payload);
                if self.answers.send(Err(Broken { task, why })).is_err() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Test {
        Say(u64),
        Panic,
        /// Waits until it is cancelled, then reports that.
        Long(mpsc::Sender<()>, mpsc::Sender<()>),
    }

    impl Job for Test {
        type Done = u64;

        fn task(&self) -> Task {
            Task::new("testing", Some(7))
        }

        fn run(self, _: &mut Pages, stop: &Stop) -> u64 {
            match self {
                Self::Say(n) => n,
                Self::Panic => panic!("injected"),
                Self::Long(begun, ended) => {
                    begun.send(()).unwrap();
                    while stop.check().is_ok() {
                        std::thread::yield_now();
                    }
                    ended.send(()).unwrap();
                    0
                }
            }
        }
    }

    #[test]
    fn a_panic_is_an_answer_and_the_others_are_given() {
        let mut pool = Pool::new("test", &Host::default()).unwrap();
        for i in 0..40 {
            pool.push(if i % 2 == 0 {
                Test::Say(i)
            } else {
                Test::Panic
            });
        }
        let (mut said, mut broken) = (0, 0);
        while let Some(answer) = pool.wait() {
            match answer {
                Ok(n) => said += n,
                Err(e) => {
                    let error = e.error("a/b");
                    assert_eq!(error.code, Exit::Internal);
                    assert_eq!(error.text, "internal error while testing a/b: injected");
                    broken += 1;
                }
            }
        }
        assert_eq!((said, broken, pool.outstanding()), (380, 20, 0));
    }

    #[test]
    fn what_is_kept_lives_as_long_as_the_last_job() {
        let mut pool = Pool::new("test", &Host::default()).unwrap();
        let keep = Arc::new(());
        pool.keep(Arc::clone(&keep) as Keep);
        let (begun, has_begun) = mpsc::channel();
        let (ended, has_ended) = mpsc::channel();
        pool.push(Test::Long(begun, ended));
        has_begun.recv().unwrap();
        let weak = Arc::downgrade(&keep);
        drop(keep);
        assert!(weak.upgrade().is_some());
        drop(pool);
        has_ended.recv().unwrap();
        while weak.strong_count() > 0 {
            std::thread::yield_now();
        }
    }
}
