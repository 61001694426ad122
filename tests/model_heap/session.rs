//! Plays a sequence of acts: one thread in charge of all blocks, others that allocate and free at
//! its word, and children that look at the memory as it was when they were forked, however late
//! they are asked.

use crate::acts::Act;
use crate::heap::{Block, Heap};
use crate::more::Kinds;
use crate::ops::Op;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Other threads.
const THREADS: usize = 3;
/// Children of one sequence: each costs more than all else in it.
const FORKS: usize = 2;
/// Blocks, and bytes in them, above which a call that would make another frees one.
const PLENTY: usize = 300;
const PLENTY_BYTES: usize = 24 << 20;

enum Job {
    Call(Option<Block>, Op),
    Trim,
    /// Allocates and frees by itself until told not to: a fork finds it anywhere, but in a lock of
    /// the model's.
    Churn(Kinds, Arc<AtomicBool>),
}

/// Another thread. Each job is answered, in order, by the block that came of it.
struct Worker {
    jobs: Sender<Job>,
    answers: Receiver<Option<Block>>,
    owed: usize,
    thread: JoinHandle<()>,
}

impl Worker {
    fn new(heap: Arc<Heap>) -> Worker {
        let (jobs, inbox) = channel();
        let (outbox, answers) = channel();
        let work = move || {
            for job in inbox {
                let block = match job {
                    Job::Call(block, op) => heap.call(block, op),
                    Job::Trim => {
                        tierheap::trim();
                        None
                    }
                    Job::Churn(kinds, stop) => {
                        kinds.churn(&stop);
                        None
                    }
                };
                outbox.send(block).unwrap();
            }
        };
        Worker {
            jobs,
            answers,
            owed: 0,
            thread: std::thread::spawn(work),
        }
    }

    fn order(&mut self, job: Job) {
        self.jobs.send(job).unwrap();
        self.owed += 1;
    }

    fn collect(&mut self, live: &mut Vec<Block>) {
        for _ in 0..std::mem::take(&mut self.owed) {
            live.extend(self.answers.recv().unwrap());
        }
    }
}

/// A process that waits for a byte, then looks at its memory.
struct Child {
    pid: i32,
    word: UnixStream,
}

struct Session {
    heap: Arc<Heap>,
    live: Vec<Block>,
    workers: [Option<Worker>; THREADS],
    children: Vec<Child>,
    forks: usize,
}

impl Session {
    fn act(&mut self, act: Act) {
        match act {
            Act::Call(op) => {
                let op = self.bounded(op);
                self.heap.step(&mut self.live, op);
            }
            Act::Elsewhere(who, op) => {
                let op = self.bounded(op);
                let block = op.pick().and_then(|pick| self.take(pick));
                if op.pick().is_none() || block.is_some() {
                    self.worker(who).order(Job::Call(block, op));
                }
            }
            Act::End(who) => self.end(who % THREADS),
            Act::Meet => self.meet(),
            Act::Ask(pick) => {
                if let Some(block) = self.some(pick) {
                    self.heap.ask(block);
                }
            }
            Act::Advise(pick, how) => {
                if let Some(block) = self.some(pick) {
                    self.heap.advise(block, how);
                }
            }
            Act::Rewrite(pick) => {
                let len = self.live.len();
                if len > 0 {
                    self.live[pick % len].rewrite(&self.heap);
                }
            }
            Act::Misuse(which) => self.heap.misuse(which),
            Act::Trim => {
                tierheap::trim();
            }
            Act::Audit => self.audit(),
            Act::Renew(target) => {
                self.meet();
                let (gone, kept) = std::mem::take(&mut self.live)
                    .into_iter()
                    .partition(|b| b.target == target);
                self.live = kept;
                self.heap.renew(target, gone);
            }
            Act::Fork { busy } => self.fork(busy),
            Act::Reap(which) => {
                if !self.children.is_empty() {
                    let child = self.children.swap_remove(which % self.children.len());
                    child.reap();
                }
            }
        }
    }

    /// With plenty of blocks a call frees one instead.
    fn bounded(&self, op: Op) -> Op {
        let bytes = self.live.iter().map(|b| b.usable).sum::<usize>();
        if self.live.len() >= PLENTY || bytes >= PLENTY_BYTES {
            return Op::Free(op.pick().unwrap_or(bytes / 16));
        }
        op
    }

    fn take(&mut self, pick: usize) -> Option<Block> {
        (!self.live.is_empty()).then(|| self.live.swap_remove(pick % self.live.len()))
    }

    fn some(&self, pick: usize) -> Option<&Block> {
        self.live.get(pick % self.live.len().max(1))
    }

    fn worker(&mut self, who: usize) -> &mut Worker {
        let heap = &self.heap;
        self.workers[who % THREADS].get_or_insert_with(|| Worker::new(heap.clone()))
    }

    /// Ends a thread; its heap is left behind.
    fn end(&mut self, who: usize) {
        if let Some(mut worker) = self.workers[who].take() {
            worker.collect(&mut self.live);
            drop(worker.jobs);
            worker.thread.join().unwrap();
        }
    }

    fn meet(&mut self) {
        for worker in self.workers.iter_mut().flatten() {
            worker.collect(&mut self.live);
        }
    }

    fn audit(&mut self) {
        self.meet();
        // Frees of another heap's blocks wait in batches, and count as live until they arrive.
        // What arrives may have to be sent on, to who has the slab by now: a hop in each round, and
        // slabs of threads that ended have been adopted by one after the other.
        const HOPS: usize = 12;
        for _ in 0..HOPS {
            for worker in self.workers.iter_mut().flatten() {
                worker.order(Job::Trim);
            }
            self.meet();
            tierheap::trim();
        }
        self.heap.audit(self.live.iter());
        self.live.iter().for_each(Block::verify_ends);
        self.heap.same_in_c();
    }

    fn fork(&mut self, busy: bool) {
        if self.forks == FORKS {
            return;
        }
        self.forks += 1;
        self.meet();
        let stop = Arc::new(AtomicBool::new(false));
        if busy {
            for who in 0..2 {
                let job = Job::Churn(self.heap.handles(), stop.clone());
                self.worker(who).order(job);
            }
        }
        let (mine, mut its) = UnixStream::pair().unwrap();
        // SAFETY: the child uses what this thread owns, and leaves by `_exit`.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            0 => {
                drop(mine);
                let life = AssertUnwindSafe(|| self.in_child(&mut its));
                let status = catch_unwind(life).map_or(3, |()| 0);
                // SAFETY: ends the child without the parent's exit handlers.
                unsafe { libc::_exit(status) }
            }
            pid => self.children.push(Child { pid, word: mine }),
        }
        // Relaxed: only to be seen some time.
        stop.store(true, Ordering::Relaxed);
        self.meet();
    }

    /// Whatever the parent did meanwhile, a child has what was there at the fork; and what it does
    /// to that is its own affair.
    fn in_child(&mut self, word: &mut UnixStream) {
        let mut asked = [0];
        // Nothing is read where the parent ended without a word: it failed, and says so itself.
        if word.read(&mut asked).unwrap() == 0 {
            return;
        }
        self.live.iter().for_each(Block::verify);
        self.live.iter().for_each(|b| self.heap.ask(b));
        // The other threads are not in this process, and may have held the locks of their
        // channels: nothing of them is touched, not even to be dropped.
        std::mem::forget(std::mem::take(&mut self.workers));
        for turn in 0..40 {
            let target = crate::ops::Target::ALL[turn % 7];
            let op = match turn % 5 {
                0 | 3 => Op::Malloc(target, 24 << (turn % 11)),
                1 => Op::Calloc(target, 3, 40 << (turn % 9)),
                2 => Op::Realloc(turn * 7, 100 << (turn % 8), None),
                _ => Op::Free(turn * 5),
            };
            self.heap.step(&mut self.live, op);
        }
        for block in self.live.iter_mut().step_by(2) {
            block.rewrite(&self.heap);
        }
        tierheap::trim();
        self.live.iter().for_each(Block::verify);
        while let Some(block) = self.live.pop() {
            self.heap.free(block);
        }
    }
}

impl Child {
    fn reap(mut self) {
        self.word.write_all(&[1]).unwrap();
        let mut status = 0;
        // SAFETY: a child of this process, and a place for its status.
        let ended = unsafe { libc::waitpid(self.pid, &mut status, 0) };
        assert_eq!(ended, self.pid);
        assert_eq!(status, 0, "a child failed: wait status {status:#x}");
    }
}

/// Plays the acts, in a thread of its own, so that its heap is left to those that come later.
/// `alone`: nobody else in the process uses the heap.
pub fn play(acts: &[Act], folder: &Path, alone: bool) {
    let (acts, folder) = (acts.to_vec(), folder.to_path_buf());
    let life = move || {
        let mut session = Session {
            heap: Arc::new(Heap::new(&folder, alone)),
            live: Vec::new(),
            workers: [const { None }; THREADS],
            children: Vec::new(),
            forks: 0,
        };
        for (turn, &act) in acts.iter().enumerate() {
            session.act(act);
            if turn % 16 == 15 {
                session.live.iter().for_each(Block::verify_ends);
            }
        }
        session.audit();
        session.live.iter().for_each(Block::verify);
        session.children.drain(..).for_each(Child::reap);
        (0..THREADS).for_each(|who| session.end(who));
        session.heap.end(std::mem::take(&mut session.live));
    };
    let ended = std::thread::spawn(life).join();
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
    if alone {
        crate::heap::expect_empty();
    }
}
