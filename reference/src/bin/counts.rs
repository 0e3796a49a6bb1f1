//! One hot loop, once: what `cargo xtask counts` runs under callgrind. `counts` alone lists the loops.
#![expect(clippy::print_stdout, reason = "a program for `cargo xtask counts`")]

use karat_reference::linalg::Isa;
use karat_reference::workloads::workloads;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let wanted = std::env::args().nth(1);
    println!("isa {:?}", Isa::best());
    for workload in workloads(Isa::best())? {
        match &wanted {
            Some(name) if name == workload.name => workload.run(),
            Some(_) => {}
            None => println!("{}", workload.name),
        }
    }
    Ok(())
}
