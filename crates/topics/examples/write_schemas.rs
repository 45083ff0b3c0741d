//! Writes `schemas/` anew: `cargo run -p topics --example write_schemas`.

use std::error::Error;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    for (topic, schema) in topics::schema::all() {
        let mut file = File::create(dir.join(format!("{topic}.schema.json")))?;
        writeln!(file, "{schema:#}")?;
    }
    Ok(())
}
