//! One run, summarized: `cargo run --release -p bentpipe-sim --example once -- FILE [SETTING]`.

#![allow(clippy::print_stdout)]

use bentpipe_scenario::Scenario;
use bentpipe_sim::{Progress, run};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut scenario = Scenario::load(args.next().ok_or("usage: once FILE [SETTING]")?, &[])?;
    if let Some(setting) = args.next() {
        scenario = scenario.with_setting(&setting)?;
    }
    let r = run(&scenario, scenario.run.seed, &Progress::default())?;
    for s in &r.series {
        let values: Vec<f64> = s.values.iter().copied().filter(|x| !x.is_nan()).collect();
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let std = (values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (n - 1.0)).sqrt();
        println!("{:28} {mean:16.4} ± {std:.4}", s.name);
    }
    println!("{:#?}", r.summary);
    let (runs, packets) =
        r.drop_runs.iter().fold((0, 0), |(a, b), (len, n)| (a + n, b + u64::from(*len) * n));
    println!("mean drop run {:.4}", packets as f64 / runs as f64);
    let done = r.flows.iter().filter(|f| f.completed).count();
    let failed = r.flows.iter().filter(|f| f.closed.is_some() && !f.completed).count();
    println!("{} flows, {done} completed, {failed} failed; {} events", r.flows.len(), r.events);
    Ok(())
}
