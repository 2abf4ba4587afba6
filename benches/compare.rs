//! The comparisons with criterion's statistics; part of a name picks some of them:
//!
//! `cargo bench --all-features --bench compare -- "deposit when full"`

use std::time::Duration;

use criterion::Criterion;

mod cases;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(30)
        .configure_from_args();
    for group in cases::groups() {
        let mut benches = criterion.benchmark_group(group.name);
        for mut case in group.cases {
            benches.bench_function(&*case.name.clone(), |bencher| {
                bencher.iter_custom(|times| case.run(times));
            });
        }
    }
    criterion.final_summary();
}
