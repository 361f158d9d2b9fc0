use std::time::Duration;
use farhaul_lab::bench::*;
use farhaul_haul::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let stop = farhaul_io::Stop::new().unwrap();
    let mut c = HaulConfig::new(vec![a[1].len() as u8; 32]);
    c.law = std::env::var("LAW").unwrap_or("haul".into());
    if a[1] == "serve" {
        serve("0.0.0.0:17992".parse::<std::net::SocketAddr>().unwrap(), Box::new(Haul::server(c).map_err(|e| e.to_string()).unwrap()), Bounds::default(), Some(1), &stop, &mut |_| ()).unwrap();
    } else {
        let secs: u64 = a[3].parse().unwrap();
        let t = Target { to: a[2].parse().unwrap(), protocol: "haul".into(), cc: "haul".into(), buffers: farhaul_io::Buffers::default(), stop: None };
        let w = Wish { limit: Limit::Nanos(secs * 1_000_000_000), reverse: a.get(4).is_some(), ..Wish::default() };
        let r = run(&t, &w, &mut || Box::new(Haul::client(c.clone()).map_err(|e| e.to_string()).unwrap()), &mut |p| if let Progress::Interval { from, to, bytes } = p {
            eprintln!("{:.1}-{:.1} {:.2} Gbps", from.as_secs_f64(), to.as_secs_f64(), bytes as f64 * 8e-9 / (to - from).as_secs_f64());
        }).unwrap();
        println!("{}", serde_json::to_string_pretty(&r).unwrap());
    }
    let _ = Duration::ZERO;
}
