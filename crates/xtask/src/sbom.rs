//! The list of contents (SBOM) in CycloneDX 1.5: each linked crate with its origin, licence and dependencies.
//! Source: https://cyclonedx.org/docs/1.5/json/.

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::archive::digest;
use crate::facts::{BundledCrate, Workspace};
use crate::program::Built;

pub(crate) fn of(workspace: &Workspace, built: &Built) -> anyhow::Result<Vec<u8>> {
    let seconds = i64::try_from(workspace.epoch).context("use the time of the commit")?;
    let time = Timestamp::from_second(seconds).context("use the time of the commit")?;
    let sum = |of: &str| json!([{ "alg": "SHA-256", "content": of }]);
    let (programs, crates): (Vec<&BundledCrate>, Vec<&BundledCrate>) =
        workspace.parts.values().partition(|it| it.name == "zedbox");
    let program = *programs.first().context("find the program's crate")?;
    let component = |part: &BundledCrate| {
        let mut all = json!({
            "type": "library",
            "bom-ref": reference(part),
            "name": part.name,
            "version": part.version,
            "licenses": [{ "expression": part.license }],
        });
        // A crate of the workspace is in no registry.
        if let Some(checksum) = &part.checksum {
            all["purl"] = json!(reference(part));
            all["hashes"] = sum(checksum);
        }
        all
    };
    let library = |(name, version, license): &(&str, String, &str)| {
        json!({
            "type": "library",
            "bom-ref": format!("{name}@{version}"),
            "name": name,
            "version": version,
            "licenses": [{ "expression": license }],
        })
    };
    let dependencies: Vec<Value> = workspace
        .parts
        .values()
        .map(|part| {
            let calls: Vec<String> =
                part.calls.iter().filter_map(|it| workspace.parts.get(it)).map(reference).collect();
            json!({ "ref": reference(part), "dependsOn": calls })
        })
        .collect();
    let components: Vec<Value> =
        crates.into_iter().map(component).chain(built.libraries.iter().map(library)).collect();
    let list = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time.to_string(),
            "component": {
                "type": "application",
                "bom-ref": reference(program),
                "name": program.name,
                "version": program.version,
                "licenses": [{ "expression": program.license }],
                "hashes": sum(&digest(&built.bytes)),
            },
        },
        "components": components,
        "dependencies": dependencies,
    });
    Ok(format!("{list:#}\n").into_bytes())
}

fn reference(part: &BundledCrate) -> String {
    format!("pkg:cargo/{}@{}", part.name, part.version)
}
