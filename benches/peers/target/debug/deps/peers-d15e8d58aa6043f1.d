/work/e/benches/peers/target/debug/deps/peers-d15e8d58aa6043f1.d: /work/e/clippy.toml src/main.rs src/conditions.rs src/cpu_time.rs src/dense.rs src/driven.rs src/driver.rs src/hold.rs src/measured.rs src/memory.rs src/numbers.rs src/ours.rs src/pairs.rs src/plan.rs src/results.rs src/side.rs src/sides/mod.rs src/sides/binary_heap.rs src/sides/btree_map.rs src/sides/delay_queue.rs src/sides/guarded.rs src/sides/hash_wheel.rs src/sides/nexus.rs src/sides/single_threaded.rs src/sides/tickwheel.rs src/sides/tokio_sleep.rs src/watch.rs src/works.rs src/../Cargo.lock Cargo.toml

/work/e/benches/peers/target/debug/deps/libpeers-d15e8d58aa6043f1.rmeta: /work/e/clippy.toml src/main.rs src/conditions.rs src/cpu_time.rs src/dense.rs src/driven.rs src/driver.rs src/hold.rs src/measured.rs src/memory.rs src/numbers.rs src/ours.rs src/pairs.rs src/plan.rs src/results.rs src/side.rs src/sides/mod.rs src/sides/binary_heap.rs src/sides/btree_map.rs src/sides/delay_queue.rs src/sides/guarded.rs src/sides/hash_wheel.rs src/sides/nexus.rs src/sides/single_threaded.rs src/sides/tickwheel.rs src/sides/tokio_sleep.rs src/watch.rs src/works.rs src/../Cargo.lock Cargo.toml

/work/e/clippy.toml:
src/main.rs:
src/conditions.rs:
src/cpu_time.rs:
src/dense.rs:
src/driven.rs:
src/driver.rs:
src/hold.rs:
src/measured.rs:
src/memory.rs:
src/numbers.rs:
src/ours.rs:
src/pairs.rs:
src/plan.rs:
src/results.rs:
src/side.rs:
src/sides/mod.rs:
src/sides/binary_heap.rs:
src/sides/btree_map.rs:
src/sides/delay_queue.rs:
src/sides/guarded.rs:
src/sides/hash_wheel.rs:
src/sides/nexus.rs:
src/sides/single_threaded.rs:
src/sides/tickwheel.rs:
src/sides/tokio_sleep.rs:
src/watch.rs:
src/works.rs:
src/../Cargo.lock:
Cargo.toml:

# env-dep:CARGO_MANIFEST_DIR=/work/e/benches/peers
# env-dep:CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
# env-dep:CLIPPY_CONF_DIR
