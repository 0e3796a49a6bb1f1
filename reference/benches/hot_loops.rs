//! Times each hot loop on every instruction set of this machine: `cargo bench -p karat-reference`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use karat_reference::linalg::Isa;
use karat_reference::workloads::workloads;

fn hot_loops(criterion: &mut Criterion) {
    for &isa in Isa::available().iter().rev() {
        let mut group = criterion.benchmark_group(format!("{isa:?}"));
        for workload in workloads(isa).expect("a thread starts") {
            if workload.flops > 0.0 {
                group.throughput(Throughput::Elements(workload.flops as u64));
            }
            group.bench_function(workload.name, |bencher| bencher.iter(|| workload.run()));
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(std::time::Duration::from_millis(500)).warm_up_time(std::time::Duration::from_millis(100));
    targets = hot_loops
}
criterion_main!(benches);
