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
use crate::kubernetes::{Kubernetes, NotDone};
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
/// The pause after a refusal. It doubles with each further one: a request stays in the API for an hour.
const REFUSED: Duration = Duration::from_secs(60);
const REFUSED_MAX: Duration = Duration::from_secs(1800);
/// The time after which an unchanged trouble is told again.
const TOLD_EVERY: Duration = Duration::from_secs(3600);

/// What this process knows of its requests.
#[derive(Default)]
pub(crate) struct Asker {
    pending: Option<Pending>,
    /// A certificate that this node's clock finds not valid, and when it came.
    untimely: Option<(Pair, Instant)>,
    told: Option<(Told, Instant)>,
    refusal: Option<Refusal>,
    /// When the last certificate came that is in use.
    signed: Option<Instant>,
}

/// A request without an answer.
struct Pending {
    name: String,
    key: Key,
    since: Instant,
}

/// The last answer, if that was a refusal: nothing is asked for a while.
struct Refusal {
    why: String,
    at: Instant,
    pause: Duration,
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

impl From<NotDone> for Unsigned {
    fn from(NotDone { is_forbidden, why }: NotDone) -> Self {
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
        if let Some(refusal) = self.refusal.as_ref().filter(|refusal| refusal.at.elapsed() < refusal.pause) {
            return Err(refusal.unsigned());
        }
        let pair = stop::at_its_end(self.signed(own))??;
        self.judge(pair, own, Instant::now())
    }

    fn refused(&mut self, why: String) -> Unsigned {
        let pause = self.refusal.as_ref().map_or(REFUSED, |last| (last.pause * 2).min(REFUSED_MAX));
        self.refusal.insert(Refusal { why, at: Instant::now(), pause }).unsigned()
    }

    fn judge(&mut self, pair: Pair, own: &Own, since: Instant) -> Result<Pair, Unsigned> {
        let identity = pair.identity(&own.owner()).map_err(|why| {
            let what = format!("the signer {} gave a certificate that cannot be used: {why}", own.signer);
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
        let began = Instant::now();
        let mut is_said = false;
        loop {
            let unsigned = match self.look(&api, own).await {
                Ok(pair) => return Ok(pair),
                Err(unsigned) => unsigned,
            };
            let waits_for_a_person = matches!(unsigned.trouble, Trouble::Refused | Trouble::Forbidden);
            if waits_for_a_person || began.elapsed() >= WAIT {
                return Err(unsigned);
            }
            let waited = self.pending.as_ref().map_or(began, |pending| pending.since).elapsed();
            if !is_said && waited >= SAID_AFTER && waited < WAIT {
                say(&unsigned.why.to_string());
                is_said = true;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Looks at the request, after it has made one if there is none.
    async fn look(&mut self, api: &Kubernetes, own: &Own) -> Result<Pair, Unsigned> {
        let pending = match self.pending.take() {
            Some(pending) => pending,
            None => Pending::new(api, own).await?,
        };
        let unsigned = match api.requested(&pending.name).await {
            Ok(request) => match request.as_ref().map(csr::answer) {
                Some(Answered::Signed(certificate)) => {
                    self.refusal = None;
                    return Ok(Pair { certificate, key: pending.key.pem.into_bytes() });
                }
                Some(Answered::Refused(why)) => {
                    return Err(self.refused(format!("the request {} is {why}", pending.name)));
                }
                None => return Err(self.refused(format!("the request {} was deleted", pending.name))),
                Some(Answered::Pending) => pending.unsigned(),
            },
            Err(failed) => failed.into(),
        };
        self.pending = Some(pending);
        Err(unsigned)
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

impl Refusal {
    fn unsigned(&self) -> Unsigned {
        let Self { why, pause, .. } = self;
        let minutes = pause.as_secs().div_ceil(60);
        Unsigned::new(Trouble::Refused, format!("{why}. This node asks again after {minutes} min"))
    }
}

impl Pending {
    async fn new(api: &Kubernetes, own: &Own) -> Result<Self, Unsigned> {
        let key = Key::new(&own.user)?;
        let request = api.request(&key.request(&own.signer)).await?;
        let name = request.metadata.name.unwrap_or_default();
        say(&format!("asks {} for a certificate for {}: {name}", own.signer, own.user));
        Ok(Self { name, key, since: Instant::now() })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A request stays in the API for an hour, and 2,000 nodes may be refused at once.
    #[test]
    fn a_node_that_is_refused_again_and_again_asks_less_and_less() {
        let mut asker = Asker::default();
        let mut minutes = || {
            let said = asker.refused("the request x is Denied: why".to_owned()).why.to_string();
            let said = said.strip_prefix("the request x is Denied: why. This node asks again after ");
            said.and_then(|said| said.strip_suffix(" min")?.parse::<u32>().ok())
        };
        for expected in [1, 2, 4, 8, 16, 30, 30] {
            assert_eq!(minutes(), Some(expected));
        }
    }
}
