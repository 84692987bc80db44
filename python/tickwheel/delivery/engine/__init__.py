"""The engine in Rust as Python runs it: started, watched, closed; outcomes; care of a store that is not open."""
