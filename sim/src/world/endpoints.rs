//! One endpoint of everybody's list leads to another etcd, which looks like the others: it has their ids. At times the
//! others are silent, so that it is all there is.

use std::time::Duration;

use metes_core::keys::Key;
use metes_core::pool::{Meta, Record, RunStart};
use metes_core::txn::{Op, Txn};
use metes_engine::kv::Failure;

use super::World;
use super::plan::Theme;
use super::wire::{Answer, Ask, Sent};
use crate::store::Model;

impl World<'_> {
    /// The other etcd is empty, or has a store of its own.
    pub(crate) fn begin_wrong(&mut self) {
        let mut model = Model::new();
        if self.chance.one_in(2) {
            let meta = Meta::first("wrong".to_owned()).encode();
            let founding = Txn { then: vec![Op::Put(self.shared.keys.meta(), meta, None)], ..Txn::default() };
            let _ = model.txn(&founding);
        }
        self.wrong = Some(model);
    }

    /// True if a request goes to the other etcd.
    pub(crate) fn goes_wrong(&self, sent: &Sent) -> bool {
        self.wrong.is_some() && !sent.ask.is_of_api() && sent.at + 1 == self.plan.endpoints
    }

    /// True if the endpoint that a request goes to says nothing now.
    pub(crate) fn is_silent(&mut self, sent: &Sent) -> bool {
        if self.plan.theme != Theme::Endpoints || self.is_healing || sent.ask.is_of_api() {
            return false;
        }
        if self.chance.one_in(60) {
            self.silent_until = Some(self.now() + Duration::from_millis(self.chance.between(10, 9_000)));
        }
        !self.goes_wrong(sent) && self.silent_until.is_some_and(|until| self.now() < until)
    }

    /// True if the other etcd was all that a run of this start could hear, at least at first.
    pub(crate) fn was_alone_with_wrong(&self, start: &RunStart) -> bool {
        self.wrong.is_some() && self.silent_until > self.truth.began(start)
    }

    /// The other etcd answers.
    ///
    /// # Errors
    /// It gives an address. Whoever names it names more others, so nobody may use it.
    pub(crate) fn carry_out_wrong(&mut self, sent: &Sent) -> Result<Answer, String> {
        let keys = &self.shared.keys;
        let Some(wrong) = &mut self.wrong else { unreachable!("only where there is one") };
        Ok(match &sent.ask {
            Ask::Txn(txn) => {
                let mut txn = txn.clone();
                if let Some(mutant) = self.setup.mutant {
                    mutant.apply(&mut txn, keys);
                }
                let gives = wrong.path(&txn).effects().into_iter().any(|(_, op)| {
                    matches!(op, Op::Put(key, ..) if matches!(keys.parse(key), Ok(Key::Ip(..) | Key::Owner(_))))
                });
                if gives {
                    let (process, step) = (sent.process, txn.step);
                    return Err(format!(
                        "#{process} {step}: an address is given in an etcd that most do not know"
                    ));
                }
                Answer::Reply(wrong.txn(&txn))
            }
            Ask::Grant(lease, ttl) => Answer::Granted(wrong.grant(*lease, *ttl)),
            Ask::Revoke(lease) => Answer::Done(match wrong.revoke(*lease) {
                Err(Failure::LeaseNotFound) => Ok(()),
                other => other,
            }),
            Ask::Age(lease) => Answer::Age(Ok(wrong.lease_age(*lease))),
            Ask::About => Answer::About(Ok(wrong.about())),
            ask => ask.failed(Failure::Unreachable("it shows nothing".into())),
        })
    }

    /// Where half of the endpoints are another etcd, none may give an address.
    pub(crate) fn is_half_wrong(&self, txn: &Txn) -> bool {
        let keys = &self.shared.keys;
        let gives = |(_, op): &(&str, &Op)| match op {
            Op::Put(key, ..) => matches!(keys.parse(key), Ok(Key::Ip(..) | Key::Owner(_))),
            _ => false,
        };
        self.wrong.is_some() && self.plan.endpoints == 2 && self.model.path(txn).effects().iter().any(gives)
    }
}
