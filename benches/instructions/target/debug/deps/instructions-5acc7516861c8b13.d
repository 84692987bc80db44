/work/e/benches/instructions/target/debug/deps/instructions-5acc7516861c8b13.d: /work/e/clippy.toml src/main.rs Cargo.toml

/work/e/benches/instructions/target/debug/deps/libinstructions-5acc7516861c8b13.rmeta: /work/e/clippy.toml src/main.rs Cargo.toml

/work/e/clippy.toml:
src/main.rs:
Cargo.toml:

# env-dep:CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
# env-dep:CLIPPY_CONF_DIR
