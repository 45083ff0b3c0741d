//! KubeVirt's webhooks: answers to evictions of launchers, by table A3 of the facts about virtual machines,
//! and to writes of its objects while virt-api is away. Texts are in [`answers`].

use serde_json::Value;

use super::settings::KubevirtSettings;
use super::{GUESTS, MACHINES, MIGRATIONS, annotation, is_over, text};
use crate::answers;
use crate::failure::Failure;
use crate::store::{ObjectStore, is_true, name, namespace};

/// Whether the budgets may decide on the eviction. A launcher's may mark the guest in any case.
pub(crate) fn admit(store: &mut ObjectStore, pod: &Value) -> Result<(), Failure> {
    match pod["metadata"]["labels"]["kubevirt.io"].as_str() {
        Some("virt-launcher") => launcher(store, pod),
        Some("hotplug-disk") => disk(store, pod),
        _ => Ok(()),
    }
}

/// Whether an object may be written: virt-api checks each update of its own.
pub(crate) fn admit_update(store: &ObjectStore, resource: &str) -> Result<(), Failure> {
    let of = |it: &KubevirtSettings| answers::check(&resource.replace("kubevirt/", "away/"), it.minor, &[]);
    match resource {
        GUESTS | MACHINES | MIGRATIONS => {
            Some(KubevirtSettings::read(store)).filter(|it| it.is_down).as_ref().map_or(Ok(()), of)
        }
        _ => Ok(()),
    }
}

/// A status that another client than KubeVirt writes on an instance is reverted (row `status/of-others`).
pub(crate) fn keep_status(resource: &str, held: &Value, new: &mut Value) {
    if resource == GUESTS {
        new["status"] = held["status"].clone();
    }
}

fn launcher(store: &mut ObjectStore, pod: &Value) -> Result<(), Failure> {
    let settings = KubevirtSettings::read(store);
    let minor = settings.minor;
    if settings.is_down {
        let is_asked = name(pod).starts_with("virt-launcher");
        return if is_asked { answers::check("away/launcher", minor, &[]) } else { Ok(()) };
    }
    let (place, guest_name) = (namespace(pod), annotation(pod, "kubevirt.io/domain"));
    if guest_name.is_empty() || minor >= 4 && is_over(pod) {
        return Ok(());
    }
    let said = |row: &str| answers::check(row, minor, &[("namespace", &place), ("guest", guest_name)]);
    let Some(guest) = store.get(GUESTS, &place, guest_name).cloned() else {
        return said("launcher/no-guest");
    };
    let migratable = is_true(&guest, "LiveMigratable");
    match text(&guest, "/spec/evictionStrategy") {
        "LiveMigrate" if !migratable => return said("launcher/not-migratable"),
        "LiveMigrate" | "External" => {}
        "LiveMigrateIfPossible" if migratable => {}
        _ => return Ok(()),
    }
    if !text(&guest, "/status/evacuationNodeName").is_empty() {
        return said("launcher/marked");
    }
    if pod["spec"]["nodeName"] != guest["status"]["nodeName"] {
        return said("launcher/target");
    }
    let node = pod["spec"]["nodeName"].clone();
    store.edit(GUESTS, &place, guest_name, |it| it["status"]["evacuationNodeName"] = node);
    said("launcher/first")
}

fn disk(store: &ObjectStore, pod: &Value) -> Result<(), Failure> {
    let place = namespace(pod);
    let owner = text(pod, "/metadata/ownerReferences/0/name");
    let launcher = store.get("pods", &place, owner).cloned().unwrap_or_default();
    let guest = annotation(&launcher, "kubevirt.io/domain");
    if store.get(GUESTS, &place, guest).is_none() {
        return Ok(());
    }
    let pod = name(pod);
    let filled = [("pod", pod.as_str()), ("guest", guest), ("namespace", &place)];
    answers::check("hotplug/plugged", KubevirtSettings::read(store).minor, &filled)
}
