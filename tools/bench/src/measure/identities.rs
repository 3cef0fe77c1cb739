//! Durable puts of many clients while etcd gets a user for each of thousands of nodes, as `metes-install signer` makes
//! them: each change of users makes etcd build the permissions of all of them again.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use etcd_client::{Permission, PermissionType, UserAddOptions};
use support::{Etcd, Store};

use crate::lab::{Lab, Wire};
use crate::options::{Options, Section};
use crate::results::{Data, Results};
use crate::samples::float;

/// The users that are there when the last ones come, which cost the most.
const USERS: usize = 2000;
/// What two signers make in a second.
const USERS_PER_S: u32 = 2;
const CLIENTS: usize = 64;
const WINDOW: Duration = Duration::from_secs(10);
/// Pairs of a window without new users and one with them.
const PAIRS: usize = 4;

const ROLE: &str = "metes-node";
const ROOT: &str = "metes-etcd-server";
const VALUE: [u8; 256] = [b'x'; 256];

pub(crate) fn measure(options: &Options, results: &mut Results) {
    let lab = Lab::new(options, Wire::Mtls);
    let users = Users::of(&lab);
    users.make_all();
    let (mut quiet, mut busy) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        quiet.push(users.puts());
        busy.push(thread::scope(|scope| {
            let made = scope.spawn(|| users.make_slowly(pair));
            let puts = users.puts();
            made.join().expect("users are made");
            puts
        }));
    }
    let mean = |puts: &[f64]| puts.iter().sum::<f64>() / float(puts.len());
    for (name, what, puts) in [
        ("puts-quiet", "puts/s of 64 clients, 2,000 users", mean(&quiet)),
        ("puts-new-users", "the same while two users a second are made", mean(&busy)),
    ] {
        results.add(Section::Identities, name, what, Data::Number(vec![puts], "/s"));
    }
    users.root.run(async |client| client.auth_disable().await);
    lab.cluster.leave_unclean();
}

/// An etcd that asks for users, who are known by their certificates.
struct Users {
    root: Store,
    clients: Vec<Store>,
}

impl Users {
    fn of(lab: &Lab) -> Self {
        let etcd: &Etcd = lab.etcd();
        let tls = etcd.tls().expect("it has TLS");
        let store = |file: &str, name: &str| -> Store {
            let client: (PathBuf, PathBuf) = tls.client(file, name);
            lab.cluster.store().as_client(tls, &client)
        };
        let client = |_| store("node-0", &node(0));
        Self { root: store("root", ROOT), clients: (0..CLIENTS).map(client).collect() }
    }

    /// While nobody is asked for a user, this costs little.
    fn make_all(&self) {
        self.root.run(async |client| {
            client.role_add(ROLE).await?;
            let all = Permission::new(PermissionType::Readwrite, "/").with_prefix();
            client.role_grant_permission(ROLE, all).await?;
            for (name, role) in [("root", "root"), (ROOT, "root")] {
                client.user_add(name, "", Some(UserAddOptions::new().with_no_pwd())).await?;
                client.user_grant_role(name, role).await?;
            }
            for at in 0..USERS {
                client.user_add(node(at), "", Some(UserAddOptions::new().with_no_pwd())).await?;
                client.user_grant_role(node(at), ROLE).await?;
            }
            client.auth_enable().await
        });
    }

    fn make_slowly(&self, pair: usize) {
        let begin = Instant::now();
        self.root.run(async |client| {
            let mut made = 0;
            while begin.elapsed() < WINDOW {
                let name = format!("{}-{pair}-{made}", node(USERS));
                client.user_add(name.clone(), "", Some(UserAddOptions::new().with_no_pwd())).await?;
                client.user_grant_role(name, ROLE).await?;
                made += 1;
                tokio::time::sleep_until((begin + Duration::from_secs(1) / USERS_PER_S * made).into()).await;
            }
            Ok(())
        });
    }

    /// How many puts all clients get through in a second.
    fn puts(&self) -> f64 {
        let until = Instant::now() + WINDOW;
        let puts: usize = thread::scope(|scope| {
            let work = |(at, client): (usize, &Store)| {
                let client = client.clone();
                scope.spawn(move || client.run(async |client| put_until(client, at, until).await))
            };
            let workers: Vec<_> = self.clients.iter().enumerate().map(work).collect();
            workers.into_iter().map(|worker| worker.join().expect("puts succeed")).sum()
        });
        float(puts) / WINDOW.as_secs_f64()
    }
}

async fn put_until(
    client: &mut etcd_client::Client,
    at: usize,
    until: Instant,
) -> Result<usize, etcd_client::Error> {
    let mut puts = 0;
    while Instant::now() < until {
        match client.put(format!("/bench/{at:04}/{puts:016}"), VALUE, None).await {
            Ok(_) => puts += 1,
            // Users changed between its check and its commit, and nothing was written. It is sent again, as the plugin
            // does, and counts once.
            Err(e) if e.to_string().contains("auth store is old") => {}
            Err(e) => return Err(e),
        }
    }
    Ok(puts)
}

fn node(at: usize) -> String {
    format!("metes-node/bench/node-{at:04}")
}
