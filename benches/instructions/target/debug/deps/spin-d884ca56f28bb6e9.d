/work/e/benches/instructions/target/debug/deps/spin-d884ca56f28bb6e9.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/mutex.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/mutex/spin.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/relax.rs

/work/e/benches/instructions/target/debug/deps/libspin-d884ca56f28bb6e9.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/mutex.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/mutex/spin.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/relax.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/lib.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/mutex.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/mutex/spin.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.12.3/src/relax.rs:
