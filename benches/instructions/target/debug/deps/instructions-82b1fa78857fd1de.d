/work/e/benches/instructions/target/debug/deps/instructions-82b1fa78857fd1de.d: /work/e/clippy.toml src/main.rs Cargo.toml

/work/e/benches/instructions/target/debug/deps/libinstructions-82b1fa78857fd1de.rmeta: /work/e/clippy.toml src/main.rs Cargo.toml

/work/e/clippy.toml:
src/main.rs:
Cargo.toml:

# env-dep:CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
# env-dep:CLIPPY_CONF_DIR
