//! What Kubernetes says of one owner's pod right before something irrevocable is done to the owner.

use crate::api::{Api, ApiError};
use crate::holder::Holder;
use crate::verdict::is_named;
use crate::world::Pods;

/// The owner's pod as it is now, as far as the API can be asked for it: a world of one pod, or of none.
///
/// # Errors
/// [`ApiError`]
pub async fn pods_now<A: Api>(api: &A, holder: &Holder) -> Result<Pods, ApiError> {
    let mut pods = Pods::for_holders(std::slice::from_ref(holder));
    let named = holder.record.as_ref().map(|record| &record.pod).filter(|pod| is_named(pod));
    if let Some(pod) = named
        && let Some((pod, phase)) = api.pod(&pod.namespace, &pod.name).await?
    {
        pods.see(&pod, phase);
    }
    Ok(pods)
}
