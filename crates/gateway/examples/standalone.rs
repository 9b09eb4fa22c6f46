//! A gateway with no manager and no store: it serves a snapshot file that this program writes first, and hears of the
//! instances' load from it every two seconds, as from a cell.
//! `standalone DATA_DIR LISTEN WORKERS BACKEND…` routes every `*.bench.localhost` to the backends; used by `bench/proxy`.
//! With `TLS=LISTEN,CERTIFICATE,KEY` (PEM files) it listens there with TLS too.
//! With `COUNT_ALLOCATIONS=1` it prints the number of allocations so far for each line on standard input.
#![allow(clippy::print_stdout, reason = "a program")]

use std::alloc::{GlobalAlloc, Layout};
use std::io::BufRead;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// mimalloc, counted.
struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static COUNTS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "an allocator cannot be written otherwise")]
// SAFETY: every call goes to mimalloc unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTS.load(Relaxed) {
            COUNT.fetch_add(1, Relaxed);
            BYTES.fetch_add(layout.size() as u64, Relaxed);
        }
        // SAFETY: the caller's own promise.
        unsafe { mimalloc::MiMalloc.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's own promise.
        unsafe { mimalloc::MiMalloc.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if COUNTS.load(Relaxed) {
            COUNT.fetch_add(1, Relaxed);
            BYTES.fetch_add(size as u64, Relaxed);
        }
        // SAFETY: the caller's own promise.
        unsafe { mimalloc::MiMalloc.realloc(at, layout, size) }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what: &str| arguments.next().ok_or(format!("{what} is missing"));
    let (data_dir, listen, workers) = (next("DATA_DIR")?, next("LISTEN")?, next("WORKERS")?);
    let backends: Vec<String> = arguments.collect();
    std::fs::create_dir_all(&data_dir)?;
    std::fs::write(format!("{data_dir}/snapshot.json"), serde_json::to_vec(&snapshot(&backends)?)?)?;
    let tls = std::env::var("TLS").unwrap_or_default();
    let tls: Vec<_> = match tls.split(',').collect::<Vec<_>>().as_slice() {
        [listen, certificate, key] => {
            vec![serde_json::json!({"listen": listen, "certificate": certificate, "key": key})]
        }
        _ => Vec::new(),
    };
    let config = serde_json::json!({
        "listen": [listen], "tls": tls, "data_dir": data_dir, "workers": workers.parse::<usize>()?, "admin": "127.0.0.1:0",
    });
    let config: towpath_gateway::GatewayConfig = serde_json::from_value(config)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let bus = towpath_bus::MemoryBus::new();
    let started = towpath_gateway::Gateway::start(config.validate()?, Some(std::sync::Arc::new(bus.clone())));
    let gateway = runtime.block_on(started)?;
    announce(bus, cell(&backends)?)?;
    println!("listening on {:?}, admin on {:?}", gateway.addresses(), gateway.admin_address());
    COUNTS.store(std::env::var_os("COUNT_ALLOCATIONS").is_some(), Relaxed);
    for line in std::io::stdin().lock().lines() {
        line?;
        println!("{} {}", COUNT.load(Relaxed), BYTES.load(Relaxed));
    }
    runtime.block_on(gateway.drain(std::time::Duration::from_secs(5)));
    Ok(())
}

/// Says every two seconds how loaded the instances are, in a thread of its own.
fn announce(bus: towpath_bus::MemoryBus, cell: serde_json::Value) -> Result<(), Box<dyn std::error::Error>> {
    let mut cell: towpath_wire::cell::CellAnnounce = serde_json::from_value(cell)?;
    let subject = towpath_wire::subject::cell_announce(cell.cell);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let mut ticks = tokio::time::interval(std::time::Duration::from_secs(2));
            loop {
                ticks.tick().await;
                cell.seq += 1;
                let _ = towpath_bus::Bus::publish(&bus, &subject, towpath_wire::encode(&cell).into()).await;
            }
        });
    });
    Ok(())
}

/// Base and one feature lane, four balanced endpoints, and a thousand other routes so that the table is not trivial.
fn snapshot(backends: &[String]) -> Result<serde_json::Value, Box<dyn std::error::Error>> {
    let app = |name: &str| serde_json::json!({"org": "default", "space": "default", "app": name});
    let mut items = vec![
        serde_json::json!({"kind": "space", "space": {"org": "default", "space": "default"}, "lanes": {}, "names": ["base", "blue"]}),
        serde_json::json!({"kind": "app", "app": app("bench"), "upstream": {}, "stopped": false, "lanes": ["base", "blue"]}),
    ];
    items.push(
        serde_json::json!({"kind": "route", "host": "bench.localhost", "path": "/", "app": app("bench")}),
    );
    for n in 0..1000 {
        items.push(serde_json::json!({"kind": "route", "host": format!("a{n}.bench.localhost"), "path": "/", "app": app("bench")}));
    }
    Ok(serde_json::json!({"version": 1, "revision": 1, "items": items, "cells": [cell(backends)?]}))
}

/// The cell that has them all: each backend is one instance of base and one of the lane.
fn cell(backends: &[String]) -> Result<serde_json::Value, Box<dyn std::error::Error>> {
    let mut instances = Vec::new();
    for (n, backend) in backends.iter().enumerate() {
        let port = backend.rsplit(':').next().unwrap_or_default().parse::<u16>()?;
        for (lane, first) in [("base", 0), ("blue", 1000)] {
            let app = serde_json::json!({"org": "default", "space": "default", "app": "bench"});
            instances.push(serde_json::json!({
                "instance": format!("0190a5e0-0000-7000-8000-{:012}", first + n), "app": app, "lane": lane,
                "release": format!("sha256:{}", "0".repeat(64)), "port": port, "protocol": "http1", "weight": 100,
                "state": "ready", "state_ms": 1_000_000, "restarts": 0, "reason": "",
                "load": {"cpu": 0.2, "mem": 0.2, "io": 0.0}, "memory_bytes": 0, "pid": 0,
            }));
        }
    }
    Ok(serde_json::json!({
        "cell": "0190a5e0-0000-7000-8000-0000000000ff", "incarnation": 1, "seq": 1, "place": {}, "address": "127.0.0.1",
        "version": "", "driver": "process", "memory_bytes": 0, "cores": 2, "host": {"cpu": 0.2, "mem": 0.2, "io": 0.0},
        "cordoned": false, "leaving": false, "desired": 1, "builders": [], "instances": instances,
    }))
}
