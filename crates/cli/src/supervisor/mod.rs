//! The supervisor of a one-machine system: starts it, keeps it running, ends it.
//!
//! ```text
//!  start: KV nodes ──► control ──► proxy ──► addresses.json ──► "ready"
//!  run:   a child ends ──► wait (longer each time) ──► start it again, on the same addresses
//!  end:   proxy ──► control ──► SQL nodes ──► KV nodes ──► nothing left
//! ```
//!
//! Rules:
//!
//! * KV nodes that were there before start together: none may be able to serve without the others. New
//!   ones then join one after the other.
//! * One task does everything, so a child cannot end between being started and being known.
//! * The supervisor adopts orphans (it is a *subreaper*): SQL nodes whose control has died become its
//!   children, so it can end them, and reap them, without ever signalling a stranger.
//! * Every child is in a process group of its own: Ctrl-C reaches the supervisor alone, which then ends
//!   the others in their order.
//! * If the supervisor itself is killed, the lifeline ends everything (see [`process::lifeline`]).

mod child;
mod reaper;

use crate::caches::CacheArgs;
use crate::data_dir::{Addresses, DataDir, KvNode};
use crate::duration::{self, IdleTimeout};
use crate::error::{Failure, Outcome};
use crate::output;
use child::{Child, Role};
use process::lifeline;
pub(crate) use reaper::parent;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

/// How long a process may take to end after SIGTERM before it is killed. A proxy gives its sessions
/// five seconds, a KV node finishes what it writes.
const END_PATIENCE: Duration = Duration::from_secs(15);
/// How often something is looked at that sends no event.
const POLL: Duration = Duration::from_millis(5);

/// What a system is started with.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Address for clients.
    pub listen: SocketAddr,
    /// Address of the HTTP API and status page.
    pub http: SocketAddr,
    /// How long a tenant may be idle.
    pub idle_timeout: IdleTimeout,
    /// Warm SQL nodes to keep.
    pub warm_pool: usize,
    /// Most SQL nodes at a time.
    pub max_nodes: usize,
    /// KV nodes; as many as the data directory has if nobody says.
    pub kv_nodes: Option<u8>,
    /// How far the wall clocks of KV nodes may be apart.
    pub max_clock_offset: Duration,
    /// How many bytes a range of a tenant may hold before it is split.
    pub max_range_bytes: u64,
    /// How long ranges of a tenant must be small and idle before they are merged; zero is never.
    pub merge_after: Duration,
    /// The caches of each KV node.
    pub caches: CacheArgs,
}

/// A running system.
pub(crate) struct Supervisor {
    data_dir: DataDir,
    options: Options,
    kv_nodes: Vec<KvNode>,
    lifeline: lifeline::Supervisor,
    children: Vec<Child>,
    ended: SignalStream,
    wishes: Wishes,
}

/// The wish that everything ends, however it is expressed.
struct Wishes {
    terminate: SignalStream,
    interrupt: SignalStream,
    hangup: SignalStream,
}

impl Wishes {
    fn watch() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

impl Supervisor {
    /// Starts all processes and waits until they serve.
    pub async fn start(data_dir: DataDir, options: Options) -> Outcome<Self> {
        let prepared = || {
            raise_file_limit();
            rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
            std::io::Result::Ok((
                lifeline::Supervisor::new()?,
                signal(SignalKind::child())?,
                Wishes::watch()?,
            ))
        };
        let (lifeline, ended, wishes) =
            prepared().map_err(|error| Failure::new(format!("cannot start processes: {error}")))?;
        let kv_nodes = data_dir.kv_nodes(options.kv_nodes)?;
        let children = Vec::new();
        let mut supervisor = Self { data_dir, options, kv_nodes, lifeline, children, ended, wishes };
        let started = supervisor.start_all().await;
        if let Err(failure) = started {
            supervisor.end_all().await;
            return Err(failure);
        }
        Ok(supervisor)
    }

    async fn start_all(&mut self) -> Outcome {
        let (new, old): (Vec<&KvNode>, Vec<&KvNode>) = self.kv_nodes.iter().partition(|node| node.new);
        let mut stages = vec![old.iter().map(|node| Role::Kv(node.number)).collect()];
        stages.extend(new.iter().map(|node| vec![Role::Kv(node.number)]));
        stages.extend([vec![Role::Control], vec![Role::Proxy]]);
        for stage in stages {
            for role in stage {
                let mut child = Child::new(role, self.kv_nodes.len(), &self.data_dir);
                child.start(&self.arguments(role)?, self.lifeline.fd())?;
                self.children.push(child);
            }
            self.wait_until_serving().await?;
        }
        let addresses = self.addresses()?;
        self.data_dir.write_addresses(&addresses)
    }

    /// Waits until all children started so far serve. An end of any child, or a wish to end, is a failure.
    async fn wait_until_serving(&mut self) -> Outcome {
        loop {
            // In this order: a child that failed has announced why before it ended.
            let ended = reaper::reap();
            let starting = self.children.iter_mut().filter(|child| child.address().is_none());
            let serving = starting
                .map(Child::look_for_announcement)
                .try_fold(true, |all, serves| serves.map(|serves| all && serves));
            let mut lost = Ok(());
            for (pid, status) in ended {
                if let Some(child) = self.children.iter_mut().find(|child| child.pid() == Some(pid)) {
                    child.has_ended();
                    lost = Err(child.end_as_failure(&status));
                }
            }
            let serving = serving?;
            lost?;
            if serving {
                return Ok(());
            }
            tokio::select! {
                () = self.wishes.recv() => return Err(Failure::new("interrupted")),
                () = tokio::time::sleep(POLL) => {}
            }
        }
    }

    /// Where the system listens.
    pub fn addresses(&self) -> Outcome<Addresses> {
        let missing = || Failure::new("a process did not say where it listens");
        let of = |role| self.child(role).and_then(|child| child.address()).ok_or_else(missing);
        let control = self.child(Role::Control).ok_or_else(missing)?;
        let metrics: BTreeMap<String, SocketAddr> =
            self.children.iter().filter_map(|child| Some((child.role().name(), child.metrics()?))).collect();
        Ok(Addresses {
            sql: of(Role::Proxy)?,
            http: control.http().ok_or_else(missing)?,
            kv: of(Role::Kv(1))?,
            kv_nodes: self.kv_nodes.iter().map(|node| node.address).collect(),
            control: of(Role::Control)?,
            metrics,
            pid: std::process::id(),
        })
    }

    fn child(&self, role: Role) -> Option<&Child> {
        self.children.iter().find(|child| child.role() == role)
    }

    /// Arguments of a role. What listened before listens there again.
    fn arguments(&self, role: Role) -> Outcome<Vec<String>> {
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let own = self.child(role);
        let listen = own.and_then(Child::address);
        let paths = self.data_dir.paths();
        let path = |name: &str| paths.join(name).display().to_string();
        let kv_addresses = |nodes: &[KvNode]| {
            nodes.iter().map(|node| node.address.to_string()).collect::<Vec<_>>().join(",")
        };
        let mut arguments = vec![role.command().to_owned(), "--certs".into(), path("certs")];
        let mut add = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
        match role {
            Role::Kv(number) => {
                let index = usize::from(number).saturating_sub(1);
                let node = self.kv_nodes.get(index);
                let node = node.ok_or_else(|| Failure::new(format!("there is no KV node {number}")))?;
                add("listen", node.address.to_string());
                add("store", node.store.display().to_string());
                add("max-clock-offset", duration::text(self.options.max_clock_offset));
                add("max-range-bytes", self.options.max_range_bytes.to_string());
                add("merge-after", duration::text_or_never(self.options.merge_after));
                let caches = self.options.caches.sizes(self.kv_nodes.len());
                add("block-cache", caches.blocks.to_string());
                add("column-cache", caches.columns.to_string());
                // The first one makes the cluster; every other one knows somebody who is in it already.
                if let Some(earlier @ [_, ..]) = self.kv_nodes.get(..index) {
                    add("join", kv_addresses(earlier));
                }
            }
            Role::Control => {
                add("listen", listen.unwrap_or(free).to_string());
                add("http", own.and_then(Child::http).unwrap_or(self.options.http).to_string());
                add("kv", kv_addresses(&self.kv_nodes));
                add("run-dir", path("run"));
                add("log-dir", path("logs"));
                add("token-file", path("admin.token"));
                add("addresses-file", path("addresses.json"));
                add("idle-timeout", self.options.idle_timeout.to_string());
                add("warm-pool", self.options.warm_pool.to_string());
                add("max-nodes", self.options.max_nodes.to_string());
            }
            Role::Proxy => {
                add("listen", listen.unwrap_or(self.options.listen).to_string());
                let control = self.child(Role::Control).and_then(Child::address);
                let control = control.ok_or_else(|| Failure::new("control has no address"))?;
                add("control", control.to_string());
            }
        }
        add("metrics", own.and_then(Child::metrics).unwrap_or(free).to_string());
        add("address-file", path(&format!("run/{}.address", role.name())));
        add("lifeline-fd", self.lifeline.fd().to_string());
        Ok(arguments)
    }

    /// Keeps the system running until it is asked to end, then ends it.
    pub async fn run(mut self) -> Outcome {
        loop {
            let next_start = self.children.iter().filter_map(Child::start_due).min();
            let start_due = async {
                match next_start {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.wishes.recv() => break,
                _ = self.ended.recv() => {}
                () = start_due => {}
            }
            self.note_ends();
            self.start_due_children();
        }
        // Nobody may be listening any more; the end comes all the same.
        let _ = output::line("stopping");
        self.end().await;
        Ok(())
    }

    /// Ends the system.
    pub async fn end(mut self) {
        self.end_all().await;
    }

    fn note_ends(&mut self) {
        for (pid, status) in reaper::reap() {
            // Others are SQL nodes that outlived a control process.
            if let Some(child) = self.children.iter_mut().find(|child| child.pid() == Some(pid)) {
                child.has_ended();
                let pause = child.plan_start(Instant::now(), status.has_wrong_clock());
                if status.has_wrong_clock() {
                    output::note(format_args!(
                        "{} has stopped: the clock of this machine is not that of the others; run NTP. It is \
                         started again in {} seconds",
                        child.title(),
                        pause.as_secs()
                    ));
                } else {
                    output::note(format_args!("{} ended ({status}); starting it again", child.title()));
                }
            }
        }
    }

    fn start_due_children(&mut self) {
        let now = Instant::now();
        for index in 0..self.children.len() {
            let Some(child) = self.children.get(index) else { return };
            if child.start_due().is_none_or(|due| due > now) {
                continue;
            }
            let role = child.role();
            let started = self.arguments(role).and_then(|arguments| {
                let fd = self.lifeline.fd();
                self.children.get_mut(index).map_or(Ok(()), |child| child.start(&arguments, fd))
            });
            if let Err(failure) = started
                && let Some(child) = self.children.get_mut(index)
            {
                output::note(format_args!("cannot start {}: {}", child.title(), failure.message()));
                child.plan_start(now, false);
            }
        }
    }

    /// Ends every process, in order, and waits until none is left.
    async fn end_all(&mut self) {
        self.data_dir.remove_addresses();
        for role in [Role::Proxy, Role::Control] {
            let pid = self.child(role).and_then(Child::pid);
            self.end_processes(pid.into_iter().collect()).await;
        }
        self.end_orphans().await;
        // What is left are the KV nodes.
        self.end_processes(self.children.iter().filter_map(Child::pid).collect()).await;
    }

    /// SQL nodes: since control has ended, they are children of the supervisor.
    async fn end_orphans(&mut self) {
        let own: Vec<u32> = self.children.iter().filter_map(Child::pid).collect();
        let orphans = reaper::children().into_iter().filter(|pid| !own.contains(pid)).collect();
        self.end_processes(orphans).await;
    }

    /// Ends children of this process: asks, waits, kills. A second wish to end shortens the wait.
    async fn end_processes(&mut self, mut pids: Vec<u32>) {
        for pid in &pids {
            reaper::send(*pid, Signal::TERM);
        }
        let mut patience = Instant::now() + END_PATIENCE;
        let mut killed = false;
        while !pids.is_empty() {
            for (pid, _) in reaper::reap() {
                if let Some(child) = self.children.iter_mut().find(|child| child.pid() == Some(pid)) {
                    child.has_ended();
                }
            }
            pids.retain(|pid| reaper::is_child(*pid));
            if Instant::now() >= patience && !killed {
                killed = true;
                pids.iter().for_each(|pid| reaper::send(*pid, Signal::KILL));
            }
            tokio::select! {
                _ = self.ended.recv() => {}
                () = self.wishes.recv() => patience = Instant::now(),
                () = tokio::time::sleep(POLL) => {}
            }
        }
    }
}

/// A proxy has a descriptor or two per client, control one per SQL node.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Whoever has less than is needed is told so when it runs out.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
