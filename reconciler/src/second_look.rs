//! Asks Kubernetes once more for one owner's pod or claim, right before the owner is freed or replaced.

use crate::api::{Api, ApiError, ClaimList};
use crate::holder::Holder;
use crate::verdict::is_named;
use crate::world::Pods;

/// Takes the existing claims, if a record belongs to a claim and the API shows claims.
pub(crate) async fn see_claims<A: Api>(
    api: &A,
    pods: &mut Pods,
    namespace: Option<&str>,
) -> Result<(), ApiError> {
    if pods.wants_claims() && api.claims(namespace, &mut |uid| pods.see_claim(uid)).await? == ClaimList::Shown
    {
        pods.no_more_claims();
    }
    Ok(())
}

/// The owner's pod or claim as it is now, if the API can be asked for it: at most one pod, or the claims of its
/// namespace.
pub(crate) async fn pods_now<A: Api>(api: &A, holder: &Holder) -> Result<Pods, ApiError> {
    let mut pods = Pods::for_holders(std::slice::from_ref(holder));
    let named = holder.record.as_ref().map(|record| &record.pod).filter(|pod| is_named(pod));
    if let Some(pod) = named.filter(|_| pods.wants_claims()) {
        see_claims(api, &mut pods, Some(&pod.namespace)).await?;
    } else if let Some(pod) = named
        && let Some((pod, phase)) = api.pod(&pod.namespace, &pod.name).await?
    {
        pods.see(&pod, phase);
    }
    Ok(pods)
}
