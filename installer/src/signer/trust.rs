//! Whether the members of etcd trust the authority of nodes. One that does not, because it was started before the
//! authority was there, would refuse a node with its new certificate, and each ADD there would fail.

use std::time::Duration;

use etcd_client::{Certificate, Identity, TlsOptions};

use super::certificate::NodeAuthority;
use crate::client::{self, within};
use crate::files;
use crate::template::Template;

const ANSWER: Duration = Duration::from_secs(5);

/// Fails if a member that answers this program does not answer a client whose certificate the authority has signed, or
/// if no member answers.
pub(super) async fn expect(template: &Template, authority: &NodeAuthority) -> Result<(), String> {
    let own = template.tls().map_err(|e| e.to_string())?;
    let (certificate, key) = authority.passing()?;
    let ca = Certificate::from_pem(files::read(&own.ca).map_err(|e| e.to_string())?);
    let of_node = TlsOptions::new().ca_certificate(ca).identity(Identity::from_pem(certificate, key));
    let own = client::tls(&own).map_err(|e| e.to_string())?;
    let mut trusting = 0;
    for endpoint in template.endpoints().map_err(|e| e.to_string())? {
        let url = endpoint.url();
        // A member that is away is started again before it answers a node.
        if ask(template, &url, own.clone()).await.is_err() {
            continue;
        }
        ask(template, &url, of_node.clone()).await.map_err(|why| {
            format!(
                "etcd's member {url} does not trust the authority of nodes, so nodes get no certificates: restart it \
                 (kubectl -n metes-system rollout restart statefulset/etcd) when the Secret metes-etcd-server has \
                 clients.crt: {why}"
            )
        })?;
        trusting += 1;
    }
    if trusting == 0 { Err("etcd does not answer".to_owned()) } else { Ok(()) }
}

/// Asks for what every client may know.
async fn ask(template: &Template, url: &str, tls: TlsOptions) -> Result<(), String> {
    let mut client = client::connect(url, template.server_name(), tls, ANSWER).await?;
    within(ANSWER, client.member_list()).await.map(drop)
}
