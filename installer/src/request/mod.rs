//! The identity of this node: a certificate for it alone, which a signer gives by a CertificateSigningRequest.
//!
//! The key is made here. Until its certificate is there it is only in this process: if that ends, the next one makes
//! another key, and its request.

mod csr;
mod pair;
mod present;

use std::time::{Duration, Instant};

use time::OffsetDateTime;

use crate::failure::Failure;
use crate::kubernetes::{Kubernetes, Unread};
use crate::log::say;
use crate::stop;
use csr::{Answered, Key};
pub(crate) use pair::Pair;
use pair::{Identity, Shown};
pub(crate) use present::{Own, Present};

/// How long one pass waits for the signer.
const WAIT: Duration = Duration::from_secs(60);
/// The time after which it is said for what it waits.
const SAID_AFTER: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(1);
/// The time after which another certificate may find this node's clock set.
const CLOCK_STAYS: Duration = Duration::from_secs(3600);
/// The time after a certificate in which no other one is asked for while that is valid: it is due at once where the
/// clocks of this node and of the signer differ by days.
const REST: Duration = Duration::from_secs(6 * 3600);
/// The time after which an unchanged trouble is told again.
const TOLD_EVERY: Duration = Duration::from_secs(3600);

/// What this process knows of its requests.
#[derive(Default)]
pub(crate) struct Asker {
    pending: Option<Pending>,
    /// A certificate that this node's clock finds not valid, and when it came.
    untimely: Option<(Pair, Instant)>,
    told: Option<(Told, Instant)>,
    /// When the last certificate came that is in use.
    signed: Option<Instant>,
}

/// A request without an answer.
struct Pending {
    name: String,
    key: Key,
    since: Instant,
}

/// What is new if it differs from what was told before.
type Told = (Trouble, Option<i64>);

/// Why there is no certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    NoApi,
    Forbidden,
    Pending,
    Refused,
    Clock,
    Unusable,
}

/// Why there is no certificate, in words.
pub(crate) struct Unsigned {
    trouble: Trouble,
    why: Failure,
}

impl Unsigned {
    fn new(trouble: Trouble, why: impl Into<String>) -> Self {
        Self { trouble, why: Failure::new(why) }
    }
}

impl From<Failure> for Unsigned {
    fn from(why: Failure) -> Self {
        Self { trouble: Trouble::NoApi, why }
    }
}

impl From<Unread> for Unsigned {
    fn from(Unread { is_forbidden, why }: Unread) -> Self {
        Self { trouble: if is_forbidden { Trouble::Forbidden } else { Trouble::NoApi }, why }
    }
}

impl From<Unsigned> for Failure {
    fn from(unsigned: Unsigned) -> Self {
        Self::new(format!("this node has no certificate of its own yet: {}", unsigned.why))
    }
}

impl Asker {
    /// True if the node needs another certificate than this one now.
    pub(crate) fn wants_more_than(&self, present: &Present) -> bool {
        let rests = self.signed.is_some_and(|at| at.elapsed() < REST) && present.is_valid();
        present.is_due() && !rests
    }

    /// Asks for a certificate, or goes on to wait for it.
    pub(crate) fn ask(&mut self, own: &Own) -> Result<Pair, Unsigned> {
        if let Some((pair, since)) = self.untimely.take()
            && since.elapsed() < CLOCK_STAYS
        {
            return self.judge(pair, own, since);
        }
        let pair = stop::at_its_end(self.signed(own))??;
        self.judge(pair, own, Instant::now())
    }

    fn judge(&mut self, pair: Pair, own: &Own, since: Instant) -> Result<Pair, Unsigned> {
        let identity = pair.identity(&own.owner()).map_err(|why| {
            let what = format!("the signer {} gives a certificate that is of no use: {why}", own.signer);
            Unsigned::new(Trouble::Unusable, what)
        })?;
        let now = OffsetDateTime::now_utc();
        if identity.is_valid_at(now) {
            self.signed = Some(Instant::now());
            return Ok(pair);
        }
        self.untimely = Some((pair, since));
        Err(Unsigned::new(
            Trouble::Clock,
            format!(
                "this node's clock says {}, and its new certificate is valid from {} to {}: set the clocks of this \
                 node and of the signer's. It is taken as soon as it is valid, and asked for again in an hour",
                Shown(now),
                Shown(identity.not_before),
                Shown(identity.not_after)
            ),
        ))
    }

    async fn signed(&mut self, own: &Own) -> Result<Pair, Unsigned> {
        let api = Kubernetes::new().await?;
        let pending = match self.pending.take() {
            Some(pending) => pending,
            None => Pending::new(&api, own).await?,
        };
        let until = Instant::now() + WAIT;
        let mut is_said = false;
        loop {
            let asked = pending.look(&api).await;
            if let Ok(Some(certificate)) = asked {
                return Ok(Pair { certificate, key: pending.key.pem.into_bytes() });
            }
            let unsigned = asked.err().unwrap_or_else(|| pending.unsigned());
            if unsigned.trouble == Trouble::Refused {
                return Err(unsigned);
            }
            if unsigned.trouble == Trouble::Forbidden || Instant::now() >= until {
                self.pending = Some(pending);
                return Err(unsigned);
            }
            if !is_said && pending.since.elapsed() >= SAID_AFTER && pending.since.elapsed() < WAIT {
                say(&unsigned.why.to_string());
                is_said = true;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Tells what keeps the certificate that is there from being renewed: a change at once, the rest from time to time.
    pub(crate) fn tell(&mut self, present: Result<Identity, String>, unsigned: &Unsigned) {
        let now = OffsetDateTime::now_utc();
        let days = present.as_ref().ok().map(|present| (present.not_after - now).whole_days());
        let told = (unsigned.trouble, days);
        if self.told.is_some_and(|(last, at)| last == told && at.elapsed() < TOLD_EVERY) {
            return;
        }
        self.told = Some((told, Instant::now()));
        say(&format!("{}: {}", in_words(present, now), unsigned.why));
    }

    /// A trouble that is over is told at once if it comes back.
    pub(crate) fn forget(&mut self) {
        self.told = None;
    }
}

/// What the node has meanwhile.
fn in_words(present: Result<Identity, String>, now: OffsetDateTime) -> String {
    let present = match present {
        Ok(present) => present,
        Err(why) => {
            return format!(
                "the certificate of this node is not its own ({why}), and stays until it has one"
            );
        }
    };
    let until = Shown(present.not_after);
    if !present.is_valid_at(now) {
        return format!(
            "the certificate of this node is not valid, until {until} it was: ADDs fail until it has another one"
        );
    }
    let days = (present.not_after - now).whole_days();
    let warning = if present.is_alarming_at(now) { "warning: " } else { "" };
    format!(
        "{warning}the certificate of this node is not renewed, and is good for {days} more days, until {until}"
    )
}

impl Pending {
    async fn new(api: &Kubernetes, own: &Own) -> Result<Self, Failure> {
        let key = Key::new(&own.user)?;
        let request = api.request(&key.request(&own.signer)).await?;
        let name = request.metadata.name.unwrap_or_default();
        say(&format!("asks {} for a certificate for {}: {name}", own.signer, own.user));
        Ok(Self { name, key, since: Instant::now() })
    }

    /// The certificate, if it is there.
    async fn look(&self, api: &Kubernetes) -> Result<Option<Vec<u8>>, Unsigned> {
        let Self { name, .. } = self;
        match api.requested(name).await?.as_ref().map(csr::answer) {
            Some(Answered::Pending) => Ok(None),
            Some(Answered::Signed(certificate)) => Ok(Some(certificate)),
            Some(Answered::Refused(why)) => Err(Unsigned::new(
                Trouble::Refused,
                format!("the request {name} is {why}. It is asked again in a minute"),
            )),
            None => Err(Unsigned::new(
                Trouble::Refused,
                format!("the request {name} was deleted. It is asked again in a minute"),
            )),
        }
    }

    fn unsigned(&self) -> Unsigned {
        let Self { name, since, .. } = self;
        Unsigned::new(
            Trouble::Pending,
            format!(
                "the request {name} is pending for {} s: is metes-signer running? \
                 kubectl -n metes-system get pods -l app.kubernetes.io/name=metes-signer",
                since.elapsed().as_secs()
            ),
        )
    }
}
