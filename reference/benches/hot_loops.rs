//! Times each hot loop on every instruction set of this machine: `cargo bench -p karat-reference`.

use std::time::Duration;

use criterion::{Criterion, Throughput};
use karat_reference::linalg::Isa;
use karat_reference::workloads::{timed_only, workloads};

fn main() {
    let criterion = Criterion::default().sample_size(20).warm_up_time(Duration::from_millis(100));
    let mut criterion = criterion.measurement_time(Duration::from_millis(500)).configure_from_args();
    for &isa in Isa::available().iter().rev() {
        let mut group = criterion.benchmark_group(format!("{isa:?}"));
        let counted = workloads(isa).expect("a thread starts");
        for workload in counted.into_iter().chain(timed_only(isa).expect("a thread starts")) {
            if workload.flops > 0.0 {
                group.throughput(Throughput::Elements(workload.flops as u64));
            }
            group.bench_function(workload.name, |bencher| bencher.iter(|| workload.run()));
        }
        group.finish();
    }
    criterion.final_summary();
}
