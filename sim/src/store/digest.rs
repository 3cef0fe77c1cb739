//! A running digest of everything that is done to the store, to compare two runs. Not for secrets.

use std::time::Duration;

use metes_core::keys::LeaseId;

/// A number that every change goes into, in order.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Digest(u64);

impl Digest {
    pub(super) fn put(&mut self, key: &[u8], value: &[u8], lease: i64) {
        self.number(1);
        self.bytes(key);
        self.bytes(value);
        self.number(lease as u64);
    }

    pub(super) fn deleted(&mut self, key: &[u8]) {
        self.number(2);
        self.bytes(key);
    }

    pub(super) fn granted(&mut self, lease: LeaseId, ttl: Duration) {
        self.number(3);
        self.number(lease.0 as u64);
        self.number(ttl.as_secs());
    }

    pub(super) fn ended(&mut self, lease: LeaseId) {
        self.number(4);
        self.number(lease.0 as u64);
    }

    pub(super) fn passed(&mut self, time: Duration) {
        self.number(5);
        self.number(time.as_secs());
        self.number(u64::from(time.subsec_nanos()));
    }

    pub(super) fn promoted(&mut self) {
        self.number(6);
    }

    pub(super) fn compacted(&mut self, revision: i64) {
        self.number(7);
        self.number(revision as u64);
    }

    pub(super) fn space(&mut self, space: u64) {
        self.number(8);
        self.number(space);
    }

    pub(super) fn value(self) -> u64 {
        self.0
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.number(u64::from_le_bytes(*word));
        }
        for byte in rest {
            self.number(u64::from(*byte));
        }
    }

    /// Multiplies by an odd number, so that nothing is lost, and brings the high bits down to where the next number
    /// changes them.
    fn number(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.0 = mixed ^ (mixed >> 29);
    }
}
