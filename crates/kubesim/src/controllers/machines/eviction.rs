//! What KubeVirt's webhooks say to the eviction of a launcher, by table A3 of the facts about virtual machines.

use serde_json::Value;

use super::settings::KubevirtSettings;
use super::{GUESTS, annotation, is_over, text};
use crate::failure::Failure;
use crate::store::{ObjectStore, is_true, name, namespace};

const WEBHOOK: &str = "virt-launcher-eviction-interceptor.kubevirt.io";
const DISKS_WEBHOOK: &str = "hotplug-pod-eviction-interceptor.kubevirt.io";

/// Whether the eviction may go on to the budgets. A launcher's may leave its mark on the guest either way.
pub(crate) fn admit(store: &mut ObjectStore, pod: &Value) -> Result<(), Failure> {
    match pod["metadata"]["labels"]["kubevirt.io"].as_str() {
        Some("virt-launcher") => launcher(store, pod),
        Some("hotplug-disk") => disk(store, pod),
        _ => Ok(()),
    }
}

/// A webhook's refusal: no reason, no details, no Retry-After.
pub(super) fn denied(code: u16, webhook: &str, why: &str) -> Failure {
    Failure::new(code, "", format!("admission webhook \"{webhook}\" denied the request: {why}"))
}

/// What the API server says when virt-api does not answer for a webhook that must be asked.
pub(super) fn unanswered(webhook: &str) -> Failure {
    let text = format!(
        "Internal error occurred: failed calling webhook \"{webhook}\": failed to call webhook: no endpoints available \
         for service \"virt-api\""
    );
    Failure::new(500, "InternalError", text)
}

fn launcher(store: &mut ObjectStore, pod: &Value) -> Result<(), Failure> {
    let settings = KubevirtSettings::read(store);
    let minor = settings.minor;
    if settings.is_down {
        let must = minor >= 5 && name(pod).starts_with("virt-launcher");
        return if must { Err(unanswered(WEBHOOK)) } else { Ok(()) };
    }
    let (place, guest_name) = (namespace(pod), annotation(pod, "kubevirt.io/domain"));
    if guest_name.is_empty() || minor >= 4 && is_over(pod) {
        return Ok(());
    }
    let refused = |why: String| Err(denied(429, WEBHOOK, &why));
    let Some(guest) = store.get(GUESTS, &place, guest_name).cloned() else {
        let missing = format!("virtualmachineinstance.kubevirt.io \"{guest_name}\" not found");
        return refused(format!("kubevirt failed getting the vmi: {missing}"));
    };
    let migratable = is_true(&guest, "LiveMigratable");
    match text(&guest, "/spec/evictionStrategy") {
        "LiveMigrate" if !migratable => {
            return refused(format!(
                "VMI {guest_name} is configured with an eviction strategy but is not live-migratable"
            ));
        }
        "LiveMigrate" | "External" => {}
        "LiveMigrateIfPossible" if migratable => {}
        _ => return Ok(()),
    }
    let triggered = format!("Eviction triggered evacuation of VMI \"{place}/{guest_name}\"");
    let later = minor >= 5;
    if !text(&guest, "/status/evacuationNodeName").is_empty() {
        return if later { refused(format!("Evacuation in progress: {triggered}")) } else { Ok(()) };
    }
    if pod["spec"]["nodeName"] != guest["status"]["nodeName"] {
        return if later { refused("Eviction request for target Pod".to_owned()) } else { Ok(()) };
    }
    let node = pod["spec"]["nodeName"].clone();
    store.edit(GUESTS, &place, guest_name, |it| it["status"]["evacuationNodeName"] = node);
    if minor >= 3 { refused(triggered) } else { Ok(()) }
}

/// A pod that holds a hotplugged disk, named by its launcher.
fn disk(store: &ObjectStore, pod: &Value) -> Result<(), Failure> {
    let place = namespace(pod);
    let owner = text(pod, "/metadata/ownerReferences/0/name");
    let launcher = store.get("pods", &place, owner).cloned().unwrap_or_default();
    let guest = annotation(&launcher, "kubevirt.io/domain");
    if KubevirtSettings::read(store).minor < 6 || store.get(GUESTS, &place, guest).is_none() {
        return Ok(());
    }
    let pod = name(pod);
    let why =
        format!("cannot evict hotplug pod: {pod} associated with running vmi: {guest} in namespace {place}");
    Err(denied(429, DISKS_WEBHOOK, &why))
}
