//! Sessions that write a table all the time, and a model of what it must hold in the end.

use crate::database::{Database, run, session_with};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sql::engine::Engine;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use tokio::task::JoinHandle;

/// Sessions that write.
const WRITERS: u64 = 4;
/// Rows at the beginning.
pub const ROWS: u64 = 6000;

/// A row: `u` is unique, `k` and `s` are not.
type Model = BTreeMap<u64, (u64, u64, String)>;

/// What the load writes: `id` and `u` alike at first.
pub const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, u int, k int, s text, j jsonb);
    INSERT INTO t SELECT n, n, n % 100, 'S' || n % 50, jsonb_build_object('k', n % 100, 'a', jsonb_build_array(n))
    FROM generate_series(0, 5999) n";

/// The writers of a table.
pub struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    writers: Vec<JoinHandle<Model>>,
}

struct Writer {
    random: StdRng,
    own: Model,
    next: u64,
    /// Values of `u` that are free.
    free: Vec<u64>,
}

impl Writer {
    /// Every row with an id of its own remainder is its own; so are the values of `u`.
    fn new(number: u64) -> Self {
        let own = (0..ROWS).filter(|id| id % WRITERS == number);
        let own = own.map(|id| (id, (id, id % 100, format!("S{}", id % 50)))).collect();
        let next = 1_000_000 * (number + 1) + number;
        Writer { random: StdRng::seed_from_u64(number), own, next, free: Vec::new() }
    }

    fn some_id(&mut self) -> u64 {
        let from = self.random.random_range(0..ROWS);
        let after = self.own.range(from..).next().or_else(|| self.own.iter().next());
        *after.expect("a row").0
    }

    /// A value of `u` that no row has: one that another has had before, if there is one.
    fn some_u(&mut self) -> u64 {
        if let Some(position) = (!self.free.is_empty()).then(|| self.random.random_range(0..self.free.len()))
        {
            return self.free.swap_remove(position);
        }
        self.next += WRITERS;
        self.next
    }

    fn insert(&mut self, id: u64) -> String {
        let (u, k) = (self.some_u(), self.random.random_range(0..100));
        let s = format!("S{}", self.random.random_range(0..50));
        if let Some((before, ..)) = self.own.insert(id, (u, k, s.clone())) {
            self.free.push(before);
        }
        let j = format!("jsonb_build_object('k', {k}, 'a', jsonb_build_array({u}))");
        format!("INSERT INTO t VALUES ({id}, {u}, {k}, '{s}', {j})")
    }

    fn update(&mut self) -> String {
        let (id, u, k) = (self.some_id(), self.some_u(), self.random.random_range(0..100));
        let row = self.own.get_mut(&id).expect("a row");
        self.free.push(std::mem::replace(&mut row.0, u));
        row.1 = k;
        format!("UPDATE t SET u = {u}, k = {k}, j = jsonb_set(j, '{{k}}', '{k}') WHERE id = {id}")
    }

    fn delete(&mut self) -> String {
        let id = self.some_id();
        let (u, ..) = self.own.remove(&id).expect("a row");
        self.free.push(u);
        format!("DELETE FROM t WHERE id = {id}")
    }

    /// One of the things that writers do.
    fn statement(&mut self) -> String {
        match self.random.random_range(0..10) {
            0 | 1 => {
                self.next += WRITERS;
                let id = self.next;
                self.insert(id)
            }
            2 | 3 => self.delete(),
            4 => {
                let id = self.some_id();
                let set = "ON CONFLICT (id) DO UPDATE SET u = excluded.u, k = excluded.k, s = excluded.s, j = excluded.j";
                format!("{} {set}", self.insert(id))
            }
            5 => {
                let id = self.some_id();
                let row = self.own.get_mut(&id).expect("a row");
                row.2 = format!("M{}", row.1);
                let s = row.2.clone();
                format!(
                    "MERGE INTO t USING (VALUES ({id}, '{s}')) n (id, s) ON t.id = n.id \
                     WHEN MATCHED THEN UPDATE SET s = n.s"
                )
            }
            6 => {
                format!("BEGIN ISOLATION LEVEL READ COMMITTED; {}; {}; COMMIT", self.update(), self.delete())
            }
            _ => self.update(),
        }
    }
}

impl Load {
    /// Starts the writers.
    pub fn start(engine: &Arc<Engine>) -> Load {
        Self::start_at(&[engine])
    }

    /// Starts the writers, shared out among nodes.
    pub fn start_at(engines: &[&Arc<Engine>]) -> Load {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let writer = |number: u64| {
            let engine = engines[number as usize % engines.len()].clone();
            let (stop, done) = (stop.clone(), done.clone());
            tokio::spawn(async move {
                let mut session = session_with(&engine, &[]).await;
                let mut writer = Writer::new(number);
                while !stop.load(SeqCst) {
                    let text = writer.statement();
                    if let Err(error) = run(&mut session, &text, &[]).await {
                        panic!("{text}: {error:?}");
                    }
                    done.fetch_add(1, SeqCst);
                }
                writer.own
            })
        };
        let writers = (0..WRITERS).map(writer).collect();
        Load { stop, done, writers }
    }

    /// Waits until so many more statements have succeeded.
    pub async fn goes_on(&self, statements: u64) {
        let until = self.done.load(SeqCst) + statements;
        while self.done.load(SeqCst) < until {
            assert!(self.writers.iter().all(|writer| !writer.is_finished()), "a writer failed");
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    /// Ends the writers and compares the table with the model.
    pub async fn end(self, db: &mut Database) {
        self.stop.store(true, SeqCst);
        let mut model = Model::new();
        for writer in self.writers {
            model.extend(writer.await.expect("a writer"));
        }
        let rows = model.into_iter().map(|(id, (u, k, s))| format!("{id}|{u}|{k}|{s}|{k}"));
        let rows: Vec<String> = rows.collect();
        let found = db.rows("SELECT id, u, k, s, j->>'k' FROM t ORDER BY id").await;
        assert_eq!(found.len(), rows.len());
        assert_eq!(found, rows);
    }
}
