/work/e/benches/instructions/target/debug/deps/smallvec-f312a9ed9fc92f1c.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/smallvec-1.16.5/src/lib.rs

/work/e/benches/instructions/target/debug/deps/libsmallvec-f312a9ed9fc92f1c.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/smallvec-1.16.5/src/lib.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/smallvec-1.16.5/src/lib.rs:
