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

        async fn clusters(&self, until: tokio::time::Instant) -> Vec<(String, u64)> {
            self.etcd.clusters(until).await
        }

        async fn about(
            &self,
            until: tokio::time::Instant,
        ) -> Result<metes_engine::kv::About, metes_engine::kv::Failure> {
            self.etcd.about(until).await
        }
    };
}
