//! Writes `schemas/` again: `cargo run -p topics --example write_schemas`.

#[path = "../tests/schema.rs"]
mod schema;

use std::error::Error;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    let all = [(".", schema::all()), ("commands", schema::commands()), ("served", schema::served())];
    for (folder, schemas) in all {
        std::fs::create_dir_all(dir.join(folder))?;
        for (topic, schema) in schemas {
            let mut file = File::create(dir.join(folder).join(format!("{topic}.schema.json")))?;
            writeln!(file, "{schema:#}")?;
        }
    }
    Ok(())
}
