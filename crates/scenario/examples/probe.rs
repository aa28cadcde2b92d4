fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut file = args[0].clone();
    let all = std::env::var("ALL").is_ok();
    let sets: Vec<String> = args[1..].to_vec();
    if file == "-" {
        file = "/dev/stdin".into();
    }
    match bentpipe_scenario::Scenario::load(&file, &sets) {
        Ok(s) => {
            println!("ok label={} subject={:?}", s.label(), s.subject);
            for w in &s.warnings {
                println!("warning {w}");
            }
            for w in &s.unused_overrides {
                println!("unused {w}");
            }
            if all {
                for e in s.effective() {
                    println!("{} = {} [{:?}] {}", e.key, e.value, e.origin, e.note);
                }
            }
        }
        Err(e) => println!("error {e}"),
    }
}
