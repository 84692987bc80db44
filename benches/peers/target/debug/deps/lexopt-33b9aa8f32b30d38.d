/work/e/benches/peers/target/debug/deps/lexopt-33b9aa8f32b30d38.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lexopt-0.3.2/src/lib.rs

/work/e/benches/peers/target/debug/deps/liblexopt-33b9aa8f32b30d38.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lexopt-0.3.2/src/lib.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lexopt-0.3.2/src/lib.rs:
