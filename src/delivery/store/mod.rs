//! stub
#![forbid(unsafe_code)]
#![allow(missing_docs, unused_variables, clippy::all, clippy::pedantic, unreachable_pub)]
mod types;
pub use types::*;
// A stand-in until the store is here.
use std::collections::HashMap;
use std::path::Path;
use crate::delivery::error::*;
use crate::delivery::message::*;
mod options;
pub use options::*;
type R<T> = Result<T, StoreError>;
pub struct Store;
impl Store {
    pub fn open(path: &Path, options: Options) -> Result<Self, DeliveryError> { todo!() }
    pub fn id(&self) -> &str { todo!() }
    pub fn open_count(&self) -> u64 { todo!() }
    pub fn remembered_cancels(&self) -> u64 { todo!() }
    pub fn begin(&mut self) -> R<()> { todo!() }
    pub fn commit(&mut self) -> R<()> { todo!() }
    pub fn rollback(&mut self) { todo!() }
    pub fn accept(&mut self, items: &[Incoming], now_ms: i64) -> R<Vec<Accepted>> { todo!() }
    pub fn hold(&mut self, rows: &[Held]) -> R<()> { todo!() }
    pub fn near(&mut self, seqs: Vec<i64>) -> R<()> { todo!() }
    pub fn stragglers(&self) -> Vec<i64> { todo!() }
    pub fn find(&mut self, key: Option<&str>, id: &str) -> R<Option<Known>> { todo!() }
    pub fn is_open(&mut self, known: &Known) -> R<bool> { todo!() }
    pub fn finish(&mut self, done: &[Done]) -> R<()> { todo!() }
    pub fn note_attempt(&mut self, seq: i64, attempts: u32, next_ms: Option<i64>, error: &str) -> R<()> { todo!() }
    pub fn remember_cancel(&mut self, key: Option<&str>, id: &str, now_ms: i64, until_ms: i64) -> R<()> { todo!() }
    pub fn plan(&mut self, after: Position, until_ms: i64, limit: usize) -> R<Vec<Waiting>> { todo!() }
    pub fn plan_lanes(&mut self, lanes: &[i64], start: Position, through: Position, limit: usize) -> R<(Vec<Waiting>, Position)> { todo!() }
    pub fn bodies(&mut self, seqs: impl Iterator<Item = i64>) -> R<HashMap<i64, Body>> { todo!() }
    pub fn first_due_ms(&self) -> R<Option<i64>> { todo!() }
    pub fn mark(&mut self, until: Option<i64>, cursor: Option<Position>, changed: &[(i64, Option<Position>)]) -> R<()> { todo!() }
    pub fn mark_redelivered(&mut self, positions: &[Position]) -> R<()> { todo!() }
    pub fn suspects(&self) -> R<Vec<Waiting>> { todo!() }
    pub fn put_letters(&mut self, letters: &[Letter], now_ms: i64) -> R<()> { todo!() }
    pub fn unwritten_letters(&self, most: usize, most_bytes: usize) -> R<(Vec<Letter>, i64)> { todo!() }
    pub fn letters_written(&mut self, through: i64) -> R<()> { todo!() }
    pub fn inputs(&self) -> R<Vec<Progress>> { todo!() }
    pub fn put_input(&mut self, progress: &Progress) -> R<()> { todo!() }
    pub fn position(&self) -> R<Option<String>> { todo!() }
    pub fn put_position(&mut self, position: Option<&str>) -> R<()> { todo!() }
    pub fn upkeep(&mut self, is_idle: bool) -> R<bool> { todo!() }
    pub fn close(&mut self) -> R<()> { todo!() }
}
pub struct Checkpoints;
impl Checkpoints {
    pub fn start(path: &Path, failed: impl Fn(String) + Send + 'static) -> R<Self> { todo!() }
    pub fn after_commit(&self, store: &Store) { todo!() }
}
