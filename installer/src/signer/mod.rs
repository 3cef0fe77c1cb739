//! The signer: gives the installer of each node a certificate for etcd, with a user of its own.
//!
//! Two replicas run at a time and do the same, without a leader. What both try, one of them writes: a status by the
//! version that it has read, a key of etcd by its revision. The other one looks again later.
//!
//! etcd builds all permissions anew with each change of users, so a replica makes one new user in a second. A node
//! that has a user already never waits for those.

mod certificate;
mod gone;
mod judge;
mod requests;
mod trust;
mod users;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::stream::StreamExt;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use time::OffsetDateTime;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};

use crate::arguments::SignerArgs;
use crate::failure::Failure;
use crate::identity::user;
use crate::kubernetes::Kubernetes;
use crate::log::{Voice, say};
use crate::stop::unless_terminated;
use crate::template::Template;
use certificate::NodeAuthority;
use gone::Gone;
use requests::{News, NotWritten, Requests, SIGNER, is, is_done, is_large};
use users::{NotRecorded, Standing, Users, shuffle};

/// The time between two changes of users.
const CHANGE: Duration = Duration::from_secs(1);
/// The pause after the API server or etcd has failed.
const TROUBLE: Duration = Duration::from_secs(3);
/// The pause before a look at a request that another replica works at.
const ANOTHER: Duration = Duration::from_secs(2);
/// The parts of the time after which a node is forgotten: there is a look at all nodes after each.
const LOOKS: u32 = 1440;

pub(crate) fn run(arguments: &SignerArgs) -> Result<(), Failure> {
    match unless_terminated(stay(arguments))? {
        Some(Err(failed)) => Err(failed),
        _ => Ok(()),
    }
}

async fn stay(arguments: &SignerArgs) -> Result<(), Failure> {
    let template = Template::read(&arguments.template.template)?;
    // It fails at once where the files are wrong.
    NodeAuthority::read(&arguments.authority)?;
    let client = Kubernetes::new().await?.client();
    let forget_after = Duration::from_secs(arguments.forget_seconds.into());
    let mut signer = Signer {
        namespace: arguments.namespace.clone(),
        template: arguments.template.template.clone(),
        authority: arguments.authority.clone(),
        cluster: template.cluster().to_owned(),
        requests: Requests::new(&client, &arguments.namespace),
        users: None,
        trusted: None,
        waiting: HashMap::new(),
        paused_until: Instant::now(),
        gone: Gone::new(template.cluster(), forget_after),
        to_forget: Vec::new(),
        to_admit: Vec::new(),
        voice: Voice::default(),
    };
    say(&format!("signs requests for {SIGNER} of the cluster {}", signer.cluster));
    let mut changes = interval(CHANGE);
    changes.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looks = interval((forget_after / LOOKS).max(CHANGE));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if let Err(why) = signer.serve(&mut changes, &mut looks).await {
            signer.voice.say(format!("waits: {why}"));
            sleep(TROUBLE).await;
        }
    }
}

/// The state of this process. What it has not finished is known from the API server, too.
struct Signer {
    namespace: String,
    template: PathBuf,
    authority: PathBuf,
    cluster: String,
    requests: Requests,
    /// None before the first request, and after a trouble.
    users: Option<Users>,
    /// The authority of nodes that all members of etcd trust which answered, PEM.
    trusted: Option<String>,
    /// The requests to look at again.
    waiting: HashMap<String, Wait>,
    paused_until: Instant,
    gone: Gone,
    /// The users whose nodes are gone.
    to_forget: Vec<String>,
    /// The nodes without a user: their certificates are valid, and etcd was restored, or they were away for a day.
    to_admit: Vec<String>,
    voice: Voice,
}

/// What a request waits for.
enum Wait {
    /// Its turn, because it needs a new user.
    ForUser,
    Until(Instant),
}

/// How a look at a request ends.
enum Outcome {
    Done,
    /// It needs a new user.
    NeedsUser,
    /// Another replica works at it.
    Met,
}

/// What stops a look at a request.
enum Stop {
    /// The message for the requester.
    Refused(String),
    /// The API server or etcd: the request stays as it is.
    Trouble(String),
}

impl Signer {
    /// Looks at all requests, and then at what happens, until the API server must be asked anew.
    async fn serve(&mut self, changes: &mut Interval, looks: &mut Interval) -> Result<(), String> {
        let (all, mut place) = self.requests.list().await?;
        self.waiting.retain(|name, _| all.iter().any(|request| request.name_any() == *name));
        for request in all {
            self.see(request).await;
        }
        loop {
            let mut watched = self.requests.watch(&place).await?;
            loop {
                tokio::select! {
                    news = watched.next() => match news.transpose()? {
                        None => break,
                        Some(News::Place(later)) => place = later,
                        Some(News::Request(request)) => {
                            place = request.resource_version().unwrap_or_default();
                            self.see(*request).await;
                        }
                    },
                    _ = changes.tick() => self.go_on().await,
                    _ = looks.tick() => self.look_at_nodes().await,
                }
            }
        }
    }

    /// A request as the API server has just told it.
    async fn see(&mut self, request: CertificateSigningRequest) {
        let name = request.name_any();
        if is_done(&request) {
            self.waiting.remove(&name);
        } else if is_large(&request) {
            say(&format!("passes {name}: it is larger than any request of an installer"));
        } else if self.waiting.contains_key(&name) {
            // Its time comes.
        } else if Instant::now() < self.paused_until {
            self.waiting.insert(name, Wait::Until(self.paused_until));
        } else if is(&request, "Approved") {
            // In this moment, the replica that has approved it signs it.
            self.waiting.insert(name, Wait::Until(Instant::now() + ANOTHER));
        } else {
            self.treat(request, false).await;
        }
    }

    /// What is due, and then one change of users.
    async fn go_on(&mut self) {
        let now = Instant::now();
        if now < self.paused_until {
            return;
        }
        let is_due = |wait: &Wait| matches!(wait, Wait::Until(at) if *at <= now);
        let mut due: Vec<String> =
            self.waiting.iter().filter(|(_, wait)| is_due(wait)).map(|(name, _)| name.clone()).collect();
        // One that cannot be written must not keep the others waiting.
        shuffle(&mut due);
        for name in due {
            self.treat_again(&name, false).await;
        }
        let mut new: Vec<String> = self
            .waiting
            .iter()
            .filter(|(_, wait)| matches!(wait, Wait::ForUser))
            .map(|(name, _)| name.clone())
            .collect();
        // So the replicas rarely make the same one.
        shuffle(&mut new);
        if let Some(name) = new.first() {
            self.treat_again(name, true).await;
        } else if let Some(user) = self.to_forget.pop() {
            self.forget(&user).await;
        } else if let Some(node) = self.to_admit.pop() {
            self.admit(&node).await;
        }
    }

    async fn treat_again(&mut self, name: &str, may_admit: bool) {
        if Instant::now() < self.paused_until {
            return;
        }
        match self.requests.request(name).await {
            Ok(Some(request)) if !is_done(&request) => self.treat(request, may_admit).await,
            Ok(_) => drop(self.waiting.remove(name)),
            Err(why) => self.pause(why),
        }
    }

    async fn treat(&mut self, mut request: CertificateSigningRequest, may_admit: bool) {
        let name = request.name_any();
        let mut ended = self.decide(&mut request, may_admit).await;
        if let Err(Stop::Refused(why)) = ended {
            ended = self.refuse(&mut request, &why).await;
        }
        let wait = match ended {
            Ok(Outcome::Done) => None,
            Ok(Outcome::NeedsUser) => Some(Wait::ForUser),
            Ok(Outcome::Met) => Some(Wait::Until(Instant::now() + ANOTHER)),
            Err(Stop::Trouble(why) | Stop::Refused(why)) => {
                self.pause(why);
                Some(Wait::Until(self.paused_until))
            }
        };
        match wait {
            None => self.waiting.remove(&name),
            Some(wait) => self.waiting.insert(name, wait),
        };
    }

    fn pause(&mut self, why: String) {
        self.voice.say(format!("waits: {why}"));
        self.users = None;
        self.paused_until = Instant::now() + TROUBLE;
    }

    /// Checks a request, and signs it. A user of its node is there before its certificate is.
    async fn decide(
        &mut self,
        request: &mut CertificateSigningRequest,
        may_admit: bool,
    ) -> Result<Outcome, Stop> {
        let claim = judge::claim(&request.spec, &self.namespace).map_err(Stop::Refused)?;
        let pod = self.requests.pod(&claim.pod).await.map_err(Stop::Trouble)?;
        let node = judge::node(&claim, pod.as_ref()).map_err(Stop::Refused)?;
        if !self.requests.has_node(&node).await.map_err(Stop::Trouble)? {
            return Err(Stop::Refused(format!(
                "node {node} is not in the API yet: its kubelet registers it"
            )));
        }
        let authority = NodeAuthority::read(&self.authority).map_err(|e| Stop::Trouble(e.to_string()))?;
        self.expect_trust(&authority).await.map_err(Stop::Trouble)?;
        let user = user(&self.cluster, &node);
        let key = certificate::wanted(&request.spec.request.0, &user).map_err(Stop::Refused)?;
        let users = self.users().await.map_err(Stop::Trouble)?;
        match users.standing(&user).await.map_err(Stop::Trouble)? {
            Standing::Revoked => {
                users.dismiss(&user).await.map_err(Stop::Trouble)?;
                return Err(revoked(&node));
            }
            Standing::New if !may_admit => return Ok(Outcome::NeedsUser),
            Standing::New => users.admit(&user).await.map_err(Stop::Trouble)?,
            Standing::Node => {}
        }
        let leaf = authority.sign(&user, &key, request.spec.expiration_seconds).map_err(Stop::Trouble)?;
        let users = self.users().await.map_err(Stop::Trouble)?;
        let now = OffsetDateTime::now_utc().unix_timestamp();
        users.record(&user, &node, &leaf.id, now).await.map_err(|e| match e {
            NotRecorded::Refused(why) => Stop::Refused(why),
            NotRecorded::Trouble(why) => Stop::Trouble(why),
        })?;
        // Who revokes reads the record after the role is given: so one of both knows of the other.
        if users.standing(&user).await.map_err(Stop::Trouble)? == Standing::Revoked {
            users.dismiss(&user).await.map_err(Stop::Trouble)?;
            return Err(revoked(&node));
        }
        let given = self.give(request, &leaf.pem).await?;
        if matches!(given, Outcome::Done) {
            say(&format!("signed {} for node {node}: serial {}", request.name_any(), leaf.id.serial));
        }
        Ok(given)
    }

    async fn expect_trust(&mut self, authority: &NodeAuthority) -> Result<(), String> {
        if self.trusted.as_deref() != Some(authority.certificate()) {
            let template = Template::read(&self.template).map_err(|e| e.to_string())?;
            trust::expect(&template, authority).await?;
            self.trusted = Some(authority.certificate().to_owned());
        }
        Ok(())
    }

    async fn give(&self, request: &mut CertificateSigningRequest, pem: &str) -> Result<Outcome, Stop> {
        if !is(request, "Approved") {
            let approved = self.requests.decide(request, "Approved", "the pod of this node has asked").await;
            if let Some(met) = met(approved)? {
                return Ok(met);
            }
        }
        let given = self.requests.give(request, pem).await;
        Ok(met(given)?.unwrap_or(Outcome::Done))
    }

    /// What somebody else has approved cannot be denied any more: it has failed.
    async fn refuse(&self, request: &mut CertificateSigningRequest, why: &str) -> Result<Outcome, Stop> {
        let refused = if is(request, "Approved") {
            self.requests.fail(request, why).await
        } else {
            self.requests.decide(request, "Denied", why).await
        };
        let met = met(refused)?;
        if met.is_none() {
            say(&format!("denied {}: {why}", request.name_any()));
        }
        Ok(met.unwrap_or(Outcome::Done))
    }

    async fn users(&mut self) -> Result<&mut Users, String> {
        let users = match self.users.take() {
            Some(users) => users,
            None => Users::connect(&Template::read(&self.template).map_err(|e| e.to_string())?).await?,
        };
        Ok(self.users.insert(users))
    }

    async fn look_at_nodes(&mut self) {
        if Instant::now() < self.paused_until {
            return;
        }
        let looked = async {
            let nodes = self.requests.nodes().await?;
            let users = self.users().await?.all().await?;
            for unknown in self.gone.unknown(&users) {
                if let Some(node) = self.users().await?.recorded_node(unknown).await? {
                    self.gone.learn(unknown, node);
                }
            }
            self.to_forget = self.gone.look(&nodes, &users, Instant::now());
            self.to_admit = self.gone.without_user(&nodes, &users);
            shuffle(&mut self.to_admit);
            Ok(())
        };
        if let Err(why) = looked.await {
            self.pause(why);
        }
    }

    /// Makes the user of a node that may have a certificate already.
    async fn admit(&mut self, node: &str) {
        let user = user(&self.cluster, node);
        let admitted = async {
            let users = self.users().await?;
            if users.standing(&user).await? != Standing::New {
                return Ok(());
            }
            users.admit(&user).await?;
            say(&format!("added the user {user} of etcd: its node had none"));
            Ok(())
        };
        if let Err(why) = admitted.await {
            self.pause(why);
        }
    }

    /// A user that was revoked stays, so that its node never gets another certificate.
    async fn forget(&mut self, user: &str) {
        let forgotten = async {
            let node = self.gone.node_of(user);
            if self.requests.has_node(&node).await? {
                return Ok(());
            }
            let users = self.users().await?;
            if users.standing(user).await? == Standing::Revoked {
                return Ok(());
            }
            users.forget(user).await?;
            say(&format!("deleted the user {user} of etcd: its node is gone"));
            Ok(())
        };
        if let Err(why) = forgotten.await {
            self.pause(why);
        }
    }
}

fn revoked(node: &str) -> Stop {
    Stop::Refused(format!(
        "node {node} was revoked; it gets no certificate again under this name: give the machine another name, or \
         see \"Identities of nodes\" in docs/install.md"
    ))
}

fn met(written: Result<(), NotWritten>) -> Result<Option<Outcome>, Stop> {
    match written {
        Ok(()) => Ok(None),
        Err(NotWritten::Changed) => Ok(Some(Outcome::Met)),
        Err(NotWritten::Trouble(why)) => Err(Stop::Trouble(why)),
    }
}
