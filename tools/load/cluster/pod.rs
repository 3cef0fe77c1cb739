//! A pod as Multus, the runtime and kubelet treat it: which runs of the plugin follow each other, and when.

use std::rc::Rc;
use std::time::Duration;

use metes_engine::random::random_below;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::host::{Host, Sandbox};
use crate::crew::{Client, Log};

/// kubelet tries a pod whose sandbox failed again after `backOffPeriod`, and up to half of it more (`completeWork` in
/// its pod_workers.go, with `workerBackOffPeriodJitterFactor`). It does not grow.
const BACK_OFF: Duration = Duration::from_secs(10);
/// The loop that takes such pods up looks once in so long (`syncLoop` in its kubelet.go).
const SYNC_LOOP: Duration = Duration::from_secs(1);

impl Client for Host {
    async fn work(self, until: Instant) -> Log {
        let host = Rc::new(self);
        let mut pods = JoinSet::new();
        for pod in 0..host.pods {
            pods.spawn_local(bring_up(host.clone(), pod, until));
        }
        let mut log = Log::default();
        while let Some(done) = pods.join_next().await {
            log.merge(done.expect("no pod panics"));
        }
        log
    }
}

/// Tries one sandbox after the other until one has all networks; begins none after `until`.
async fn bring_up(host: Rc<Host>, pod: usize, until: Instant) -> Log {
    let (mut log, start) = (Log::default(), Instant::now());
    for number in 1.. {
        let turn = host.turns.acquire().await;
        log.waves.entry(number).or_default().begun += 1;
        if has_all_networks(&host, &host.sandbox(pod), &mut log).await {
            log.pods.take(start.elapsed());
            break;
        }
        drop(turn);
        log.waves.entry(number).or_default().failed += 1;
        if Instant::now() >= until {
            break;
        }
        sleep(BACK_OFF + up_to(BACK_OFF / 2) + up_to(SYNC_LOOP)).await;
    }
    log
}

/// Multus adds one network after the other. If one fails, it deletes that one and those before it, the last one first
/// (`CmdAdd` in its multus.go). Then the runtime deletes the sandbox, and so Multus deletes all networks
/// (`RunPodSandbox` in containerd's sandbox_run.go).
async fn has_all_networks(host: &Host, sandbox: &Sandbox, log: &mut Log) -> bool {
    let mut held = Vec::new();
    for (number, set) in host.networks.iter().enumerate() {
        if let Some(address) = host.add(sandbox, number, log).await {
            held.push((set.ranges()[0].network().to_string(), address));
            continue;
        }
        for added in (0..=number).rev().chain((0..host.networks.len()).rev()) {
            host.del(sandbox, added, log).await;
        }
        return false;
    }
    log.held = held;
    true
}

fn up_to(longest: Duration) -> Duration {
    Duration::from_micros(random_below(longest.as_micros() as u64))
}
