//! From the documents of an image to its root layer: roles, platforms, digests, and blobs without a named root.

use serde_json::{Value, json};

use super::images::sha256;
use super::*;

type Layer<'a> = (&'a [u8], Option<&'a str>);

const ROOT: Option<&str> = Some("disk-root");

fn content() -> Vec<u8> {
    root_fs((0..20_000_u32).flat_map(u32::to_le_bytes).collect())
}

fn other() -> Vec<u8> {
    root_fs((0..30_000_u32).flat_map(u32::to_be_bytes).collect())
}

fn here() -> Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({ "os": "linux", "architecture": architecture })
}

fn elsewhere() -> Value {
    json!({ "os": "linux", "architecture": "s390x" })
}

/// Images in a folder of a machine, as an OCI image layout has them.
pub(super) struct Layout<'a> {
    machine: &'a Machine,
    /// What `index.json` is to name.
    manifests: Vec<Value>,
}

impl<'a> Layout<'a> {
    pub(super) fn new(machine: &'a Machine) -> Self {
        Self { machine, manifests: Vec::new() }
    }

    fn blob(&self, bytes: &[u8]) -> String {
        let sha256 = sha256(bytes);
        self.machine.put(&format!("oci/blobs/sha256/{sha256}"), bytes);
        sha256
    }

    fn document(&self, document: &Value) -> String {
        self.blob(document.to_string().as_bytes())
    }

    /// Adds the manifest of an image with these layers and roles, and returns its digest.
    fn manifest(&mut self, layers: &[Layer<'_>], platform: Option<Value>) -> String {
        let layers: Vec<Value> = layers
            .iter()
            .map(|(bytes, role)| {
                let annotations =
                    role.map(|role| json!({ "org.lfedge.eci.role": role })).unwrap_or(json!({}));
                json!({
                    "mediaType": "application/vnd.oci.image.layer.v1.tar",
                    "digest": format!("sha256:{}", self.blob(bytes)),
                    "size": bytes.len(),
                    "annotations": annotations,
                })
            })
            .collect();
        let config = format!("sha256:{}", self.blob(b"{}"));
        let manifest =
            self.document(&json!({ "schemaVersion": 2, "config": { "digest": config }, "layers": layers }));
        self.named(&manifest, platform);
        manifest
    }

    fn named(&mut self, digest: &str, platform: Option<Value>) {
        let mut named = json!({ "digest": format!("sha256:{digest}") });
        if let Some(platform) = platform {
            named["platform"] = platform;
        }
        self.manifests.push(named);
    }

    pub(super) fn image(mut self, layers: &[Layer<'_>]) -> Self {
        self.manifest(layers, None);
        self
    }

    /// The place of the layout, with its `index.json` written.
    pub(super) fn path(&self) -> Bytes {
        self.machine.put("oci/index.json", json!({ "manifests": self.manifests }).to_string().as_bytes());
        self.machine.put("oci/oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#);
        Bytes::Path(self.machine.dir.path().join("oci"))
    }

    /// All blobs but those that `but` names, without the layout around them, as volumemgr keeps them; in an order by
    /// chance of their digests.
    fn blobs(&self, but: &[&str]) -> Bytes {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.machine.dir.path().join("oci/blobs/sha256")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !but.contains(&name.as_str()) {
                self.machine.put(&format!("verified/{name}"), &std::fs::read(path).unwrap());
                names.push(name);
            }
        }
        names.sort();
        Bytes::Blobs { folder: self.machine.dir.path().join("verified"), names }
    }
}

async fn write(machine: &Machine, bytes: Bytes, wanted: &str) -> Result<(), String> {
    let image = ImageToWrite { sha256: wanted.to_owned(), ..image(bytes) };
    let mut store = GptStore::new(&machine.topic_root, &machine.disk, None);
    let written = store.write_image(Label::B, image, nobody()).await;
    written.map(drop).map_err(|cause| step::chain(&cause))
}

fn holds(machine: &Machine, bytes: &[u8]) -> bool {
    machine.bytes()[704 * 512..].starts_with(bytes)
}

/// Refused with `why`, and nothing changed.
async fn refused(machine: &Machine, bytes: Bytes, wanted: &str, why: &str) {
    let before = machine.bytes();
    let refused = write(machine, bytes, wanted).await.unwrap_err();
    assert!(refused.contains(why), "{refused}");
    assert_eq!(machine.bytes(), before);
}

#[tokio::test]
async fn b3_the_root_layer_of_an_oci_layout_is_written() {
    let (content, packed, large) = (content(), gzip(&content()), vec![7; 1 << 20]);
    for layers in [
        vec![(content.as_slice(), None)],
        vec![(&packed, ROOT)],
        // What has no role, or the role of something else, is not written and counts for nothing.
        vec![(&large, None), (&content, ROOT)],
        vec![(&content, ROOT), (&large, Some("kernel"))],
    ] {
        let machine = Machine::new();
        let mut layout = Layout::new(&machine);
        let manifest = layout.manifest(&layers, None);
        for wanted in [String::new(), manifest.clone(), format!("sha256:{manifest}")] {
            write(&machine, layout.path(), &wanted).await.unwrap();
            assert!(holds(&machine, &content));
        }
        std::fs::remove_file(machine.dir.path().join("oci/index.json")).unwrap();
        // As containerd keeps its contents: by digests alone.
        let store = || Bytes::Path(machine.dir.path().join("oci"));
        write(&machine, store(), &manifest).await.unwrap();
        refused(&machine, store(), "", "no digest names the image").await;
    }
}

#[tokio::test]
async fn b3_a_layout_of_another_image_or_with_changed_blobs_is_refused() {
    let (machine, content) = (Machine::new(), content());
    let mut layout = Layout::new(&machine);
    let manifest = layout.manifest(&[(&content, ROOT)], None);
    let layer = sha256(&content);
    refused(&machine, layout.path(), &"0".repeat(64), "holds another image than sha256 000").await;
    refused(&machine, layout.path(), "sha256:1234", "`sha256:1234` is no sha256 digest").await;
    write(&machine, layout.path(), &layer).await.unwrap();
    let blob = |name: &str| format!("oci/blobs/sha256/{name}");
    machine.put(&blob(&layer), &root_fs(vec![7; 9000]));
    assert!(write(&machine, layout.path(), "").await.unwrap_err().contains("has the sha256"));
    machine.put(&blob(&manifest), b"{}");
    refused(&machine, layout.path(), "", "is not what its digest says").await;
    let climbs = br#"{"manifests":[{"digest":"sha256:../../../etc/passwd"}]}"#;
    layout.path();
    machine.put("oci/index.json", climbs);
    refused(&machine, Bytes::Path(machine.dir.path().join("oci")), "", "is no sha256 digest").await;
}

#[tokio::test]
async fn t8_a_manifest_without_one_root_or_with_a_second_disk_is_refused_by_name() {
    let (content, other) = (content(), other());
    let rows: [(&[Layer<'_>], &str); 6] = [
        (
            &[(&content, None), (&other, None)],
            "has layers: 2, of them with org.lfedge.eci.role = disk-root: 0",
        ),
        (
            &[(&content, ROOT), (&other, ROOT)],
            "has layers: 2, of them with org.lfedge.eci.role = disk-root: 2",
        ),
        (&[(&content, Some("kernel"))], "has layers: 1, of them"),
        (&[], "has layers: 0"),
        (
            &[(&content, ROOT), (&other, Some("disk-additional"))],
            "a layer with org.lfedge.eci.role = disk-additional",
        ),
        (&[(&content, Some("disk-additional"))], "a layer with org.lfedge.eci.role = disk-additional"),
    ];
    for (layers, why) in rows {
        let machine = Machine::new();
        let mut layout = Layout::new(&machine);
        let manifest = layout.manifest(layers, None);
        let path = layout.path();
        refused(&machine, path.clone(), "", why).await;
        refused(&machine, path, "", &format!("the manifest {}", machine.dir.path().display())).await;
        // A manifest without layers is like any other blob, among blobs.
        let why = if layers.is_empty() { "is a manifest" } else { why };
        refused(&machine, layout.blobs(&[]), &manifest, why).await;
    }
}

#[tokio::test]
async fn t8_of_an_index_the_image_of_this_machine_is_taken_or_the_one_that_is_wanted() {
    let (content, other) = (content(), other());
    let machine = Machine::new();
    let mut layout = Layout::new(&machine);
    let foreign = layout.manifest(&[(&other, ROOT)], Some(elsewhere()));
    std::fs::remove_file(machine.dir.path().join(format!("oci/blobs/sha256/{foreign}"))).unwrap();
    layout.named(&"a".repeat(64), Some(json!({ "os": "unknown", "architecture": "unknown" })));
    let mut attested = json!({ "digest": format!("sha256:{}", "b".repeat(64)), "platform": here() });
    attested["annotations"] = json!({ "vnd.docker.reference.type": "attestation-manifest" });
    layout.manifests.push(attested);
    layout.path();
    refused(&machine, layout.path(), "", "index.json has no image").await;
    refused(&machine, layout.path(), "", "but for: linux/s390x").await;
    let own = layout.manifest(&[(&content, ROOT)], Some(here()));
    for wanted in ["", own.as_str()] {
        write(&machine, layout.path(), wanted).await.unwrap();
        assert!(holds(&machine, &content));
    }
    refused(&machine, layout.path(), &foreign, &format!("has no image {foreign} for linux/")).await;

    // Two tags, and one of them twice.
    let second = layout.manifest(&[(&other, ROOT)], Some(here()));
    layout.named(&second, Some(here()));
    refused(&machine, layout.path(), "", "images for linux/").await;
    refused(
        &machine,
        layout.path(),
        "",
        &format!("name one as ContentSha256: sha256:{own}, sha256:{second}"),
    )
    .await;
    write(&machine, layout.path(), &second).await.unwrap();
    assert!(holds(&machine, &other));
    write(&machine, layout.path(), &own).await.unwrap();
    assert!(holds(&machine, &content));

    // An index in an index, by its own digest or by one in it.
    let inner = layout.document(&json!({ "manifests": layout.manifests }));
    let machine_index = json!({ "manifests": [{ "digest": format!("sha256:{inner}") }] }).to_string();
    machine.put("oci/index.json", machine_index.as_bytes());
    let path = || Bytes::Path(machine.dir.path().join("oci"));
    write(&machine, path(), &second).await.unwrap();
    assert!(holds(&machine, &other));
    refused(&machine, path(), &inner, "name one as ContentSha256").await;
}

#[tokio::test]
async fn t8_among_blobs_the_manifest_says_which_is_the_root_and_without_one_nothing_is_written() {
    let (content, other) = (content(), other());
    let machine = Machine::new();
    let mut layout = Layout::new(&machine);
    // The larger blob is not the root.
    let manifest = layout.manifest(&[(&other, None), (&content, ROOT)], Some(here()));
    for wanted in [String::new(), manifest.clone(), format!("sha256:{manifest}"), sha256(&content)] {
        write(&machine, layout.blobs(&[]), &wanted).await.unwrap();
        assert!(holds(&machine, &content));
    }
    refused(&machine, layout.blobs(&[&manifest]), "", "of this content in").await;
    refused(
        &machine,
        layout.blobs(&[&manifest]),
        "",
        "is a manifest, so nothing says which of them is the root",
    )
    .await;
    refused(&machine, layout.blobs(&[]), &sha256(&other), "holds another image").await;

    // With an index above it, wherever it stands among the names.
    let foreign = layout.manifest(&[(&other, ROOT)], Some(elsewhere()));
    refused(&machine, layout.blobs(&[]), "", "are manifests of different images").await;
    write(&machine, layout.blobs(&[]), &manifest).await.unwrap();
    let index = layout.document(&json!({ "manifests": layout.manifests }));
    for wanted in ["", index.as_str(), manifest.as_str()] {
        write(&machine, layout.blobs(&[&foreign]), wanted).await.unwrap();
        assert!(holds(&machine, &content));
    }
    let layer = format!("verified/{}", sha256(&content));
    std::fs::remove_file(machine.dir.path().join(&layer)).unwrap();
    refused(
        &machine,
        Bytes::Blobs { folder: machine.dir.path().join("verified"), names: vec![index, manifest] },
        "",
        &format!("{layer}: No such file"),
    )
    .await;
}
