//! stub
#![forbid(unsafe_code)]
#![allow(missing_docs)]
pub type Position = (i64, i64);
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome { Delivered = 1, Cancelled = 2, Dead = 3 }
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting { pub due_ms: i64, pub seq: i64, pub lane: Option<i64>, pub size: u32, pub redelivered: bool, pub attempts: u32, pub next_ms: Option<i64> }
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done { pub seq: i64, pub due_ms: i64, pub outcome: Outcome, pub at_ms: i64, pub lateness_us: Option<i64>, pub attempts: u32, pub redelivered: bool, pub is_near: bool }
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter { pub source: String, pub line: i64, pub reason: String, pub allowed: String, pub record: Vec<u8> }
