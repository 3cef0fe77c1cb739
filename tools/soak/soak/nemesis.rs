//! The faults, in an order that the seed gives.

use std::thread;
use std::time::{Duration, Instant};

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, CompactionOptions};
use tonic::Code;

use super::{Proxies, Soak};
use support::Trio;
use support::chaos_proxies::{GrpcRule, Kind, Loss, TcpFault, next_random};

const EVERY: Duration = Duration::from_secs(5);
/// Shorter than that, so that one fault is over before the next.
const LASTS: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(50);
const MEMBERS: u64 = 3;

type Fault<'s> = (&'static str, fn(&mut Nemesis<'s>));

/// On drop the servers end.
pub(super) struct Nemesis<'s> {
    soak: &'s Soak,
    proxies: Proxies,
    trio: Trio,
    random: u64,
}

impl<'s> Nemesis<'s> {
    const FAULTS: [Fault<'s>; 17] = [
        ("a member killed", Self::kill_member),
        ("a member stopped", Self::stop_member),
        ("a member cut off", Self::cut_member_off),
        ("the leader killed", Self::kill_leader),
        ("the leader stopped", Self::stop_leader),
        ("the leader cut off", Self::cut_leader_off),
        ("the lead moved", Self::move_leader),
        ("no quorum: two members stopped", Self::stop_two),
        ("no quorum: two members killed", Self::kill_two),
        ("plugin processes killed", Self::kill_processes),
        ("plugin processes stopped", Self::stop_processes),
        ("requests of a node mistreated", Self::mistreat_requests),
        ("commits of a node mistreated", Self::mistreat_commits),
        ("connections of a node mistreated", Self::mistreat_connections),
        ("history compacted", Self::compact),
        ("a member defragmented", Self::defragment),
        ("the alarm of a full disk raised", Self::raise_alarm),
    ];

    pub(super) fn new(soak: &'s Soak, trio: Trio, proxies: Proxies, seed: u64) -> Self {
        Self { soak, proxies, trio, random: seed }
    }

    /// Lets one fault happen after the other. Each kind happens once before any kind comes again.
    pub(super) fn work(&mut self, lasts: Duration) {
        let until = Instant::now() + lasts;
        let mut bag: Vec<Fault<'s>> = Vec::new();
        loop {
            let next = Instant::now() + EVERY;
            if next > until {
                break;
            }
            if bag.is_empty() {
                bag.extend(Self::FAULTS);
            }
            let index = self.below(bag.len() as u64) as usize;
            let (name, befall) = bag.swap_remove(index);
            self.soak.report().befell(name);
            befall(self);
            if !self.rest_until(next) {
                break;
            }
        }
        self.rest_until(until);
        self.trio.leader();
    }

    /// Waits until this moment, or until the callers wind down. True if there is any need to go on.
    fn rest_until(&self, at: Instant) -> bool {
        while Instant::now() < at && !self.soak.is_over() {
            thread::sleep(POLL);
        }
        !self.soak.is_over()
    }

    fn kill_member(&mut self) {
        let member = self.member();
        self.kill_for_a_while(&[member]);
    }

    fn stop_member(&mut self) {
        let member = self.member();
        self.stop_for_a_while(&[member]);
    }

    fn cut_member_off(&mut self) {
        let member = self.member();
        self.cut_off_for_a_while(member);
    }

    fn kill_leader(&mut self) {
        let leader = self.trio.leader();
        self.kill_for_a_while(&[leader]);
    }

    fn stop_leader(&mut self) {
        let leader = self.trio.leader();
        self.stop_for_a_while(&[leader]);
    }

    fn cut_leader_off(&mut self) {
        let leader = self.trio.leader();
        self.cut_off_for_a_while(leader);
    }

    fn move_leader(&mut self) {
        self.trio.move_leader(self.trio.follower());
    }

    fn stop_two(&mut self) {
        let [one, other] = self.two();
        self.stop_for_a_while(&[one, other]);
    }

    fn kill_two(&mut self) {
        let [one, other] = self.two();
        self.kill_for_a_while(&[one, other]);
    }

    fn kill_processes(&mut self) {
        for id in self.some_processes(6) {
            self.soak.processes.kill(id);
            thread::sleep(Duration::from_millis(self.below(50)));
        }
    }

    /// For as long as any other fault; callers go on with theirs.
    fn stop_processes(&mut self) {
        let ids = self.some_processes(6);
        ids.iter().for_each(|&id| self.soak.processes.stop(id));
        thread::sleep(LASTS);
        ids.iter().for_each(|&id| self.soak.processes.resume(id));
    }

    fn mistreat_requests(&mut self) {
        self.mistreat(GrpcRule::any);
    }

    fn mistreat_commits(&mut self) {
        self.mistreat(|| {
            GrpcRule::any().when(|call| matches!(call.kind, Kind::Commit | Kind::Free | Kind::Bury))
        });
    }

    fn mistreat(&mut self, which: impl Fn() -> GrpcRule) {
        let action = self.below(7);
        for index in 0..self.proxies.grpc.len() {
            let rule = which().chance(400, next_random(&mut self.random));
            let rule = match action {
                0 => rule.refuse(Code::Unavailable, "etcdserver: request timed out"),
                1 => rule.claim(Code::Unavailable, "etcdserver: request timed out"),
                2 => rule.lose(Loss::Reset),
                3 => rule.lose(Loss::Silence),
                4 => rule.delay(Duration::from_millis(1700)),
                5 => rule.twice(),
                _ => rule.stall(),
            };
            self.proxies.grpc[index].rule(rule);
        }
        thread::sleep(LASTS);
        self.proxies.grpc.iter().for_each(|proxy| _ = proxy.clear());
    }

    fn mistreat_connections(&mut self) {
        let fault = match self.below(5) {
            0 => TcpFault::Reset,
            1 => TcpFault::Blackhole,
            2 => TcpFault::HalfOpen,
            3 => TcpFault::Delay(Duration::from_millis(200)),
            _ => TcpFault::Cut(500),
        };
        self.proxies.tcp.iter().for_each(|proxy| proxy.set(fault));
        thread::sleep(LASTS);
        self.proxies.tcp.iter().for_each(|proxy| proxy.set(TcpFault::Pass));
    }

    fn compact(&mut self) {
        let store = self.soak.cluster.store();
        let revision = store.revision();
        store.run(async |client| {
            client.compact(revision, Some(CompactionOptions::new().with_physical())).await
        });
    }

    fn defragment(&mut self) {
        let member = self.member();
        self.trio.through(member).run(async |client| client.defragment().await);
    }

    fn raise_alarm(&mut self) {
        let member = self.member();
        let through = self.trio.through(member);
        let set = |action| {
            through.run(async |client| {
                let status = client.status().await?;
                let id = status.header().expect("an answer has a header").member_id();
                let mut options = AlarmOptions::new();
                options.with_member(id);
                client.alarm(action, AlarmType::Nospace, Some(options)).await
            });
        };
        set(AlarmAction::Activate);
        thread::sleep(LASTS);
        set(AlarmAction::Deactivate);
    }

    fn kill_for_a_while(&mut self, members: &[usize]) {
        members.iter().for_each(|&member| self.trio.kill(member));
        thread::sleep(LASTS);
        self.trio.restart_all(members);
    }

    fn stop_for_a_while(&mut self, members: &[usize]) {
        members.iter().for_each(|&member| self.trio.stop(member));
        thread::sleep(LASTS);
        members.iter().for_each(|&member| self.trio.resume(member));
    }

    fn cut_off_for_a_while(&mut self, member: usize) {
        self.trio.blackhole(member);
        thread::sleep(LASTS);
        self.trio.heal(member);
    }

    fn some_processes(&mut self, most: usize) -> Vec<u64> {
        let mut ids = self.soak.processes.ids();
        let mut some = Vec::new();
        while some.len() < most && !ids.is_empty() {
            let index = self.below(ids.len() as u64) as usize;
            some.push(ids.swap_remove(index));
        }
        some
    }

    fn member(&mut self) -> usize {
        self.below(MEMBERS) as usize
    }

    fn two(&mut self) -> [usize; 2] {
        let spared = self.member();
        [(spared + 1) % 3, (spared + 2) % 3]
    }

    fn below(&mut self, bound: u64) -> u64 {
        next_random(&mut self.random) % bound
    }
}
