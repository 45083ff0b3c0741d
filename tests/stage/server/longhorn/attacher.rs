//! Plays the CSI part: turns a VolumeAttachment of Kubernetes into a ticket of Longhorn, and reports its state.

use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};

use super::at;

const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
const DRIVER: &str = "driver.longhorn.io";
/// On an attachment until Longhorn has released the volume.
const FINALIZER: &str = "external-attacher/driver-longhorn-io";
const LOOK: Duration = Duration::from_millis(200);

pub(super) async fn play(client: Client) {
    let mut often = tokio::time::interval(LOOK);
    loop {
        often.tick().await;
        // Failures are repeated in the next round: the webhook starts later, and others write as well.
        if let Ok(all) = ask(&client, "GET", ATTACHMENTS, None).await {
            for attachment in all["items"].as_array().into_iter().flatten() {
                drop(serve(&client, attachment).await);
            }
        }
    }
}

async fn ask(client: &Client, method: &str, path: &str, body: Option<Value>) -> Result<Value, kube::Error> {
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/merge-patch+json");
    client
        .request(request.body(body.map(|it| it.to_string().into_bytes()).unwrap_or_default()).unwrap())
        .await
}

async fn serve(client: &Client, attachment: &Value) -> Result<(), kube::Error> {
    if attachment["spec"]["attacher"] != DRIVER {
        return Ok(());
    }
    let (meta, node) = (&attachment["metadata"], &attachment["spec"]["nodeName"]);
    let id = meta["name"].as_str().unwrap_or_default();
    let own = format!("{ATTACHMENTS}/{id}");
    let claimed = attachment["spec"]["source"]["persistentVolumeName"].as_str().unwrap_or_default();
    let volume = ask(client, "GET", &format!("/api/v1/persistentvolumes/{claimed}"), None).await?;
    let tickets = at("volumeattachments", volume["spec"]["csi"]["volumeHandle"].as_str().unwrap_or_default());
    let held = ask(client, "GET", &tickets, None).await?;
    let (ticket, state) =
        (&held["spec"]["attachmentTickets"][id], &held["status"]["attachmentTicketStatuses"][id]);
    let set = |ticket: Value| json!({ "spec": { "attachmentTickets": { id: ticket } } });
    if !meta["deletionTimestamp"].is_null() {
        if !ticket.is_null() {
            ask(client, "PATCH", &tickets, Some(set(Value::Null))).await?;
        } else if state.is_null() {
            ask(client, "PATCH", &own, Some(json!({ "metadata": { "finalizers": null } }))).await?;
        }
    } else if ticket.is_null() {
        ask(client, "PATCH", &own, Some(json!({ "metadata": { "finalizers": [FINALIZER] } }))).await?;
        let ticket = json!({
            "id": id, "type": "csi-attacher", "nodeID": node, "generation": 0,
            "parameters": { "disableFrontend": "false", "lastAttachedBy": "" },
        });
        ask(client, "PATCH", &tickets, Some(set(ticket))).await?;
    } else if state["satisfied"] == true && attachment["status"]["attached"] != true {
        ask(client, "PATCH", &format!("{own}/status"), Some(json!({ "status": { "attached": true } })))
            .await?;
    }
    Ok(())
}
