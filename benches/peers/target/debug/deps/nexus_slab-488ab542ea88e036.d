/work/e/benches/peers/target/debug/deps/nexus_slab-488ab542ea88e036.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/bounded.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/byte/mod.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/byte/bounded.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/byte/unbounded.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/shared.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/unbounded.rs

/work/e/benches/peers/target/debug/deps/libnexus_slab-488ab542ea88e036.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/bounded.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/byte/mod.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/byte/bounded.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/byte/unbounded.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/shared.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/unbounded.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/lib.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/bounded.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/byte/mod.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/byte/bounded.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/byte/unbounded.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/shared.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/nexus-slab-2.4.0/src/unbounded.rs:
