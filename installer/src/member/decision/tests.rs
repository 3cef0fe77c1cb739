//! Every order in which three members may ask each other, lose answers, start again and begin.

use std::collections::HashSet;

use super::*;

const MEMBERS: usize = 3;

/// One member of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Member {
    /// Its step waits.
    Step(Seen),
    /// Its etcd runs.
    Etcd,
    /// It has data and comes up later.
    Late,
    /// It never answers.
    Dead,
}

/// All three, and what may still happen to them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    members: Vec<Member>,
    /// True if answers get lost.
    loses: bool,
    /// The number of steps that may still end and begin again, without the knowledge that they had.
    restarts: u8,
    /// The number of steps that may still end forever.
    deaths: u8,
    /// The number of members that may still lose the disk with which their etcd has run.
    disks: u8,
    /// The members that lost their disk while another member's etcd ran, which knows their promises.
    bound: BTreeSet<usize>,
}

fn ip(index: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, index as u8 + 1])
}

fn others(me: usize) -> impl Iterator<Item = usize> {
    (0..MEMBERS).filter(move |other| *other != me)
}

fn step(me: usize) -> Member {
    Member::Step(Seen::new(ip(me), others(me).map(ip)))
}

fn silence() -> Answer {
    Answer::Silence(UNASKED.to_owned())
}

impl World {
    /// `kinds`: e empty, d with data, l with data and late, x dead.
    fn of(kinds: &str) -> Self {
        let member = |(me, kind)| match kind {
            'e' => step(me),
            'd' => Member::Etcd,
            'l' => Member::Late,
            _ => Member::Dead,
        };
        let members = kinds.chars().enumerate().map(member).collect();
        Self { members, loses: false, restarts: 0, deaths: 0, disks: 0, bound: BTreeSet::new() }
    }

    fn answer(&self, of: usize) -> Answer {
        match &self.members[of] {
            Member::Step(seen) => Answer::Empty { seen: seen.empty() },
            Member::Etcd => Answer::Etcd,
            Member::Late | Member::Dead => silence(),
        }
    }

    fn with(&self, me: usize, member: Member) -> Self {
        let mut world = self.clone();
        world.members[me] = member;
        world
    }

    fn heard(&self, me: usize, from: usize, answer: Answer) -> Option<Self> {
        let Member::Step(seen) = &self.members[me] else { return None };
        let mut seen = seen.clone();
        seen.hear(ip(from), answer);
        Some(self.with(me, Member::Step(seen)))
    }

    fn runs(&self, other: usize) -> bool {
        self.members[other] == Member::Etcd
    }

    /// The world after a member has acted on its decision. An etcd lets it in if a majority runs.
    fn acted(&self, me: usize) -> Option<Self> {
        let Member::Step(seen) = &self.members[me] else { return None };
        match seen.decision() {
            Decision::New => {
                assert!(!self.members.contains(&Member::Late), "it begins beside data: {self:?}");
                assert!(!self.bound.contains(&me), "it forgets what it promised: {self:?}");
            }
            Decision::Join if others(me).all(|other| self.runs(other)) => {}
            Decision::Join | Decision::Wait => return None,
        }
        Some(self.with(me, Member::Etcd))
    }

    fn wiped(&self, me: usize) -> Self {
        let mut world = self.with(me, step(me));
        world.disks -= 1;
        if others(me).any(|other| self.runs(other)) {
            world.bound.insert(me);
        }
        world
    }

    fn next(&self) -> Vec<Self> {
        let mut next = Vec::new();
        for me in 0..MEMBERS {
            for other in others(me) {
                next.extend(self.heard(me, other, self.answer(other)));
                next.extend(self.heard(me, other, silence()).filter(|_| self.loses));
            }
            next.extend(self.acted(me));
            match self.members[me] {
                Member::Late => next.push(self.with(me, Member::Etcd)),
                Member::Etcd if self.disks > 0 => next.push(self.wiped(me)),
                _ => {}
            }
            if matches!(self.members[me], Member::Step(_)) && self.restarts > 0 {
                next.push(Self { restarts: self.restarts - 1, ..self.with(me, step(me)) });
            }
            if matches!(self.members[me], Member::Step(_)) && self.deaths > 0 {
                next.push(Self { deaths: self.deaths - 1, ..self.with(me, Member::Dead) });
            }
        }
        next
    }

    /// One round in which all are up that ever will be, and nothing is lost.
    fn round(&self) -> Self {
        let mut world = self.clone();
        for me in 0..MEMBERS {
            if world.members[me] == Member::Late {
                world.members[me] = Member::Etcd;
            }
            for other in others(me) {
                let answer = world.answer(other);
                world = world.heard(me, other, answer).unwrap_or(world);
            }
            world = world.acted(me).unwrap_or(world);
        }
        world
    }
}

/// Goes through everything that can happen, and returns how many etcds run in the end.
fn all_orders(first: World) -> Vec<usize> {
    let mut known = HashSet::from([first.clone()]);
    let mut open = vec![first];
    let mut ends = BTreeSet::new();
    while let Some(world) = open.pop() {
        let settled = world.round();
        // Nothing happens any more.
        if settled == world {
            ends.insert((0..MEMBERS).filter(|member| world.runs(*member)).count());
        }
        open.extend(world.next().into_iter().chain([settled]).filter(|next| known.insert(next.clone())));
    }
    ends.into_iter().collect()
}

#[test]
fn three_empty_members_begin_together_in_every_order() {
    assert_eq!(all_orders(World { loses: true, ..World::of("eee") }), [3]);
}

#[test]
fn three_empty_members_begin_together_though_one_begins_again() {
    assert_eq!(all_orders(World { restarts: 1, ..World::of("eee") }), [3]);
}

/// If both others have seen its folder, they begin without it.
#[test]
fn three_empty_members_of_which_one_ends_for_ever_begin_as_two_or_not_at_all() {
    assert_eq!(all_orders(World { deaths: 1, ..World::of("eee") }), [0, 2, 3]);
}

#[test]
fn nobody_begins_anew_beside_data() {
    let lossy = |kinds| World { loses: true, restarts: 1, ..World::of(kinds) };
    // One that has lost its disk joins the two others, also if they come up late.
    for kinds in ["edd", "eld", "ell"] {
        assert_eq!(all_orders(lossy(kinds)), [3], "{kinds}");
    }
    // No majority has its data: a person must decide.
    for kinds in ["eed", "eel"] {
        assert_eq!(all_orders(lossy(kinds)), [1], "{kinds}");
    }
    assert_eq!(all_orders(lossy("edx")), [1]);
    assert_eq!(all_orders(lossy("eex")), [0]);
    assert_eq!(all_orders(lossy("exx")), [0]);
}

#[test]
fn one_that_loses_its_disk_begins_anew_only_with_the_others() {
    assert_eq!(all_orders(World { disks: 1, ..World::of("eee") }), [3]);
}
