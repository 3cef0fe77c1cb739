//! For a test's own store that meddles with some requests of a real one.

/// Inside of `impl Kv`: the requests that such a store leaves to the real one in its field `etcd`.
#[macro_export]
macro_rules! left_to_etcd {
    () => {
        fn expect(&self, cluster: u64) {
            self.etcd.expect(cluster);
        }

        fn cluster(&self) -> Option<u64> {
            self.etcd.cluster()
        }

        fn has_refused(&self) -> bool {
            self.etcd.has_refused()
        }

        fn endpoints(&self) -> Vec<String> {
            self.etcd.endpoints()
        }

        async fn ask_each(
            &self,
            reads: &metes_core::txn::Txn,
            until: tokio::time::Instant,
            hear: &mut metes_engine::kv::Hear<'_>,
        ) {
            self.etcd.ask_each(reads, until, hear).await;
        }

        fn leave_out(&self, places: &[usize]) {
            self.etcd.leave_out(places);
        }

        async fn about(
            &self,
            until: tokio::time::Instant,
        ) -> Result<metes_engine::kv::About, metes_engine::kv::Failure> {
            self.etcd.about(until).await
        }
    };
}
