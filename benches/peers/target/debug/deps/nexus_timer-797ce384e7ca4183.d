/work/e/benches/peers/target/debug/deps/nexus_timer-797ce384e7ca4183.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/entry.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/handle.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/level.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/store.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/timeout_queue.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/wheel.rs

/work/e/benches/peers/target/debug/deps/libnexus_timer-797ce384e7ca4183.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/entry.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/handle.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/level.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/store.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/timeout_queue.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/wheel.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/lib.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/entry.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/handle.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/level.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/store.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/timeout_queue.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-timer-1.5.0/src/wheel.rs:
