//! What the program says of the machine.

use crate::tiny::Text;
use crate::{Place, bad, good, object};

#[test]
fn doctor_shows_the_machine_and_its_limits() {
    let place = Place::new(Text::None);
    let out = good(&mut place.cera(&["doctor", "-t", "1"])).out;
    for part in
        ["processor", "tiers", "scalar", "cores", "huge pages", "read memory, GB/s", "int8 peak, TOPS"]
    {
        assert!(out.contains(part), "no {part} in {out}");
    }
    let o = object(&good(&mut place.cera(&["doctor", "--json", "-t", "1", "--cpu-tier", "scalar"])).out);
    assert_eq!((&o["cpu_tier"], &o["threads"]), (&"scalar".into(), &1.into()));
    assert_eq!(o["tiers"][0], "scalar");
    assert!(o["logical_cores"].as_u64().unwrap() >= 1);
    for rate in ["read_gb_per_second", "int8_tops", "f32_tflops"] {
        for threads in ["one", "all"] {
            let [best, median] = ["best", "median"].map(|k| o["limits"][rate][threads][k].as_f64().unwrap());
            assert!(0.0 < median && median <= best, "{rate}: {o}");
        }
    }
    for cost in ["barrier_ns", "wake_ns", "wake_asleep_ns"] {
        let [best, median] = ["best", "median"].map(|k| o["limits"][cost][k].as_f64().unwrap());
        assert!(0.0 < best && best <= median, "{cost}: {o}");
    }
}

#[test]
fn doctor_refuses_what_the_processor_lacks() {
    let place = Place::new(Text::None);
    let foreign = if cfg!(target_arch = "aarch64") { "avx2" } else { "neon" };
    bad(&mut place.cera(&["doctor", "--cpu-tier", foreign]), 1, &[foreign, "--cpu-tier"]);
    bad(&mut place.cera(&["doctor", "-t", "5000"]), 1, &["5000"]);
    bad(&mut place.cera(&["doctor", "-t", "0"]), 2, &[]);
}
