//! Says what interpreter the bindings are built for, so that `src/tools/gil_cell.rs` can refuse one without a GIL.

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
