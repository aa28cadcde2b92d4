//! The printed fluid models of RED and AVQ, compared with values computed by hand.

use bentpipe_queue::fluid::{FluidConfig, FluidVariant, Inputs, Service};
use bentpipe_queue::registry::AQMS;
use bentpipe_queue::{Link, Value, Values};
use bentpipe_units::Rate;

/// Derivatives of the variables `x` of the model `name` on a link of 1000 packets/s of 1000 bytes with 50 packets
/// waiting, where `offered` packets/s arrive and `accepted` are accepted.
fn change(name: &str, given: &[(&str, Value)], x: &[f64], (offered, accepted): (f64, f64)) -> Vec<f64> {
    let algorithm = AQMS.iter().find(|a| a.name == name).unwrap();
    let link = Link { capacity: Rate::from_bps(8_000_000), mean_packet: 1000.0 };
    let value = |name: &str| given.iter().find(|(of, _)| *of == name).map(|(_, x)| *x);
    let values = Values::resolve(algorithm.params, &link, &value).unwrap();
    let given = FluidConfig { packet: 1000.0, limit: 1e9, variant: FluidVariant::Printed };
    let model = algorithm.fluid.unwrap()(&values, &given).unwrap();
    let inputs = Inputs {
        q: 50.0,
        dq: 0.0,
        offered,
        load: offered,
        accepted,
        capacity: 1000.0,
        output: 1000.0,
        service: Service::Full,
        unit: 0.1,
        resolution: 1e-4,
    };
    let mut dx = vec![0.0; model.states()];
    model.derivatives(x, 0.5, &inputs, &mut dx);
    dx
}

/// `d avg/dt = ln(1 - w_q) / δ (avg - q)`, here `ln 2` times 20 packets per arrival, at the arrival rate, at most the
/// link's.
#[test]
fn printed_red_matches_hand_computed_values() {
    let given =
        [("w_q", Value::Number(0.5)), ("min_th", Value::Number(5.0)), ("max_th", Value::Number(90.0))];
    let halved = 20.0 * libm::log(2.0);
    for (offered, samples) in [(4000.0, 4000.0), (400.0, 1000.0)] {
        let found = change("red", &given, &[30.0], (offered, 0.5 * offered))[0];
        assert!((found / (samples * halved) - 1.0).abs() < 1e-12, "{found}");
    }
    // The rate of change is limited by the time step, so a weight of 1 has a solution.
    let found = change("red", &[("w_q", Value::Number(1.0)), given[1], given[2]], &[30.0], (400.0, 200.0))[0];
    assert!((found - 20.0 * 1e4).abs() < 1e-6, "{found}");
}

/// A buffer of 90 packets, so a threshold of 30: `dp/dt = -p` below it and `1 - p` above, in 100 ms; `v` is filled by
/// accepted packets and served at C', which `alpha` adapts to the difference of the load from the target.
#[test]
fn printed_avq_matches_hand_computed_values() {
    let given =
        [("buffer", Value::Number(90_000.0)), ("alpha", Value::Number(0.5)), ("gamma", Value::Number(0.9))];
    for (v, dp) in [(28.0, -2.5), (29.0, -2.5), (31.0, 7.5), (46.0, 7.5)] {
        let found = change("avq", &given, &[v, 0.25, 500.0], (700.0, 350.0));
        let expected = [-150.0, dp, 0.5 * (900.0 - 700.0)];
        assert!(found.iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-9), "{found:?} at {v}");
    }
}
