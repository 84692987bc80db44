//! The parts of delivery around one store, without threads: each step is a call (rules D3 to D9).
//!
//! ```text
//! store <-> writer <-> dispatcher <-> timer
//!                          |
//!                       senders -> sink
//! ```
//!
//! A caller drives [`Engine`] by hand: on a manual clock every run is the same. [`threads`](super::threads) drives it
//! with its own threads.

pub(crate) mod destinations;
mod looking;
mod marks;
mod recover;
pub(crate) mod tenants;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::settings::Settings;
use crate::base::clock::{DueClock, WallTime};
use crate::base::error::{DeliveryError, StoreError};
use crate::base::open_stores::FileId;
use crate::base::summary::Summary;
use crate::base::sync::{Mutex, MutexGuard, Rank};
use crate::due::clocks::{Armed, timer};
use crate::due::dispatcher::{Dispatcher, Event};
use crate::due::measures::Percentiles;
use crate::due::pace::Pace;
use crate::due::places::PlaceLimits;
use crate::due::tenants::TenantLimits;
use crate::group::items::{Completion, Item, Receipt, Ticket};
use crate::group::writer::{Begun, Committed, Sends, Writer};
use crate::group::writer_queue::WriterQueue;
use crate::message::named::{NamedSettings, TenantSettings};
#[cfg(feature = "http")]
use crate::sinks::Verdict;
#[cfg(feature = "http")]
use crate::sinks::http::{address::HttpAddress, trial::try_out};
use crate::sinks::{Delivery, Owner, TAKES_NO_NAMED, TakesNamed, Verdicts};
use crate::store::file::owner::Ownership;
use crate::store::replica::{Lease, Replicate, Replication, Role};
use crate::store::{
    self, Action, Broken, Checkpoints, Opening, Options, PAUSED, Progress, RESTORED, Store, StoredDestination,
    StoredTenant,
};
use crossbeam_utils::sync::Parker;
use tickwheel::{Clock, Timer};

/// An open store with all its waiting messages. Nothing is due before `start`.
///
/// A thread takes its locks in this order, and may leave out any of them: writer, dispatcher, queue, and with
/// threads also senders and telling. `Rank` has the order, and debug builds check it.
pub struct Engine {
    pub(crate) queue: WriterQueue,
    pub(crate) dispatcher: Mutex<Dispatcher>,
    pub(crate) timer: Arc<Timer<Armed>>,
    pub(crate) wall: Arc<dyn WallTime>,
    pub(crate) settings: Settings,
    /// The writer, until the engine is closed.
    writer: Mutex<Option<Writer>>,
    /// Whether a caller that submits waits if much is queued. Only an engine with threads makes room meanwhile.
    pub(crate) waits_for_room: bool,
    /// The process that opened it.
    process: u32,
    store_id: String,
    restored: Option<String>,
    openings: Vec<Opening>,
    inputs: HashMap<String, Progress>,
    percentiles: Mutex<Percentiles>,
    place_limits: OnceLock<PlaceLimits>,
    /// The store holds it, and releases it when its connections are closed.
    ownership: Weak<Ownership>,
    /// Until when this process may send, if the store is replicated.
    lease: Option<Arc<Lease>>,
}

impl Engine {
    /// Opens the store; a missing file is created. Messages that an earlier process may have sent before it crashed are
    /// marked as such.
    ///
    /// # Errors
    /// The store cannot be used.
    pub(crate) fn open(
        ownership: Ownership,
        settings: Settings,
        clock: Clock,
        wall: Arc<dyn WallTime>,
    ) -> Result<Self, DeliveryError> {
        let timer = timer(clock).map_err(|error| DeliveryError::Usage(error.to_string()))?;
        let timer = Arc::new(timer);
        let ownership = Arc::new(ownership);
        let weak = Arc::downgrade(&ownership);
        let lease = settings.replicate.as_ref().map(|it| Arc::new(it.lease()));
        let opened = open_store(&ownership, &settings, &timer, &wall, None, lease.as_ref())?;
        let (mut store, mut dispatcher, actions) = opened;
        if let Some(lease) = &lease {
            // So long may a send take that an earlier owner, if there was one, began before its lease was over.
            let noted = store.note_longest_send(settings.sink_timeout_ms as i64);
            let longest_ms = noted.map_err(|broken| broken.of(ownership.path()))?;
            if lease.figures().epoch > 1 {
                dispatcher.others_until_us = timer.clock().now_us() + longest_ms as u64 * 1_000;
            }
        }
        dispatcher.to[0].pace = Pace::new(settings.rate, timer.clock().now_us());
        let (store_id, openings, open) = (store.id().to_owned(), store.openings().to_vec(), store.open_count());
        let kept = || Ok((store.inputs()?, store.get_meta(RESTORED)?));
        let (inputs, restored) = kept().map_err(|broken: Broken| broken.of(ownership.path()))?;
        let mut writer = Writer::new(store, settings.horizon_ms as f64, actions);
        writer.summary.resumed = open;
        writer.commits.last_ms = wall.now_us() / 1000;
        let queue = WriterQueue::new(open, writer.store.has_unwritten_letters(), dispatcher.window.budget.clone());
        queue.lock().summary = writer.summary;
        queue.lock().recurring = writer.store.recurring_count();
        queue.lock().pause_ends_ms = writer.store.first_pause_end_ms();
        queue.lock().commits = writer.commits;
        queue.lock().groups_in_all = writer.store.commits();
        Ok(Self {
            queue,
            dispatcher: Mutex::ranked(Rank::Dispatcher, dispatcher),
            timer,
            wall,
            settings,
            writer: Mutex::ranked(Rank::Writer, Some(writer)),
            waits_for_room: false,
            process: std::process::id(),
            store_id,
            restored,
            openings,
            inputs,
            percentiles: Mutex::default(),
            place_limits: OnceLock::new(),
            ownership: weak,
            lease,
        })
    }

    /// The id of the store. The pair `(store, seq)` names a message everywhere.
    #[must_use]
    pub fn store_id(&self) -> &str {
        &self.store_id
    }

    /// The id of the store's history. It changes if the store is restored from a backup, or made anew.
    #[must_use]
    pub fn history_id(&self) -> String {
        history_id(&self.store_id, self.restored.as_deref())
    }

    /// The last openings of the store with this one at the end, and the number of groups on disk. Ask for it before
    /// the marks. They tell whether the store went back to an older copy of itself.
    #[must_use]
    pub fn openings(&self) -> (&[Opening], i64) {
        (&self.openings, self.queue.lock().groups_in_all)
    }

    /// How far each input was read by earlier runs.
    #[must_use]
    pub fn inputs(&self) -> &HashMap<String, Progress> {
        &self.inputs
    }

    /// The due time of the first waiting message, before [`Engine::start`].
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn first_due_ms(&self) -> Result<Option<i64>, DeliveryError> {
        self.try_writer(|writer| writer.store.first_due_ms())
    }

    /// How late the delivered messages were since the store was opened. It is known once the store is closed.
    #[must_use]
    pub fn percentiles(&self) -> Percentiles {
        *self.percentiles.lock()
    }

    /// Starts delivery: from now on messages are due, by this clock.
    pub(crate) fn start(&self, clock: DueClock) {
        {
            let mut dispatcher = self.lock_dispatcher();
            dispatcher.start(clock);
            dispatcher.window.start();
        }
        let _ = self.with_writer(|writer| writer.loader.start()); // a closed engine loads nothing
        self.queue.wake();
    }

    /// Called after a function of the program, while the engine is opened: checks that this is still the same process.
    ///
    /// # Errors
    /// The function forked, and this is the child: the store belongs to the parent.
    pub(crate) fn check_process(&self) -> Result<(), DeliveryError> {
        if std::process::id() == self.process {
            return Ok(());
        }
        let text = "this process was forked while the queue was opened, which is its parent's: start processes with spawn \
                    or forkserver";
        Err(DeliveryError::Usage(text.to_owned()))
    }

    /// The part of this process in the chain of its store. `None`: the store is not replicated. It waits for nothing.
    #[must_use]
    pub fn replication(&self) -> Option<Replication> {
        self.lease.as_ref().map(|it| it.figures())
    }

    /// Where the store is replicated to, if it is.
    pub(super) fn chain(&self) -> Option<(&Replicate, &Arc<Lease>)> {
        self.settings.replicate.as_ref().zip(self.lease.as_ref())
    }

    /// Must be called in a child that was forked while the engine was open: the store belongs to the parent.
    pub fn forget_in_child(&self) {
        if let Some(ownership) = self.ownership.upgrade() {
            ownership.forget_in_child();
            std::mem::forget(ownership); // it belongs to the parent, so it must not be dropped here
        }
    }

    /// The clock by which messages are due when the wall clock says so.
    #[must_use]
    pub fn wall_clock(&self) -> DueClock {
        DueClock::wall(self.timer.clock(), &*self.wall)
    }

    /// The wall clock, in microseconds since 1970.
    pub(crate) fn wall_us(&self) -> i64 {
        self.wall.now_us()
    }

    /// The clock of the timer.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.timer.clock()
    }

    /// Submits items. The answers come once all items are on disk. Waits while much is queued.
    ///
    /// # Errors
    /// The engine is closed, or has failed.
    pub(crate) fn submit(&self, items: Vec<Item>) -> Result<Receipt, DeliveryError> {
        let (receipt, complete) = Receipt::pair();
        self.submit_with(items, complete)?;
        Ok(receipt)
    }

    /// Does the same as [`Engine::submit`], and calls `complete` with the answers, in the writer's thread.
    ///
    /// # Errors
    /// The same as for [`Engine::submit`]. Then `complete` is not called.
    pub(crate) fn submit_with(&self, items: Vec<Item>, complete: Completion) -> Result<(), DeliveryError> {
        self.queue.submit(Ticket::new(items, complete), self.waits_for_room, None).map(drop)
    }

    /// Does the same as [`Engine::submit_with`], but waits at most for `timeout`. After a time-out it has submitted
    /// nothing, and returns the ticket.
    ///
    /// # Errors
    /// The same as for [`Engine::submit_with`].
    pub fn submit_within(&self, ticket: Ticket, timeout: Duration) -> Result<Option<Ticket>, DeliveryError> {
        self.queue.submit(ticket, self.waits_for_room, Some(timeout))
    }

    /// Takes so many bytes of the budget for what is being accepted, before it is submitted; a negative number gives back.
    /// Returns whether there was room. It takes no lock.
    pub fn take_bytes(&self, bytes: isize) -> bool {
        self.queue.budget.take(bytes)
    }

    /// Counts, as of the last commit.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.queue.lock().summary
    }

    /// Messages without an outcome, as of the last commit.
    #[must_use]
    pub fn open_count(&self) -> u64 {
        self.queue.lock().open
    }

    /// How many open messages recur.
    pub fn recurring_count(&self) -> u64 {
        self.queue.lock().recurring
    }

    /// Whether nothing waits, nothing is under way, and the observer has every dead letter.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }

    /// The timer. It has one task for each millisecond in which messages are due, and one for each retry, round of tries and
    /// cut-off. A caller may record the timer, but must not drive it.
    pub fn timer(&self) -> &Timer<impl Send> {
        &*self.timer
    }

    /// Why the destination is down, if it is.
    #[must_use]
    pub fn down(&self) -> Option<String> {
        self.lock_dispatcher().down().map(|(_, reason)| reason.to_owned())
    }

    /// Whether sending is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.lock_dispatcher().is_paused()
    }

    // --- Steps of the writer -------------------------------------------------

    /// Commits one group. If messages were delivered, it calls `sync` first. Returns whether there is more to do at
    /// once.
    ///
    /// # Errors
    /// The store or the destination failed. Then the engine takes no more items.
    pub(crate) fn write(&self, sync: &dyn Fn() -> Result<(), DeliveryError>) -> Result<bool, DeliveryError> {
        let begun = self.begin_group()?;
        let committed = self.commit_group(begun, sync)?;
        self.publish_group(&committed)
    }

    /// The first part of [`Engine::write`]: takes the work of the group.
    pub(crate) fn begin_group(&self) -> Result<Begun, DeliveryError> {
        self.lock_dispatcher().window.seal_parking(); // before the attempts are taken: they come with the group
        self.queue.lock().busy_since_us = self.timer.clock().now_us(); // first, because it is read once a group is busy
        self.with_writer(|writer| writer.begin(&self.queue))
    }

    /// The second part. After it the group is on disk.
    pub(crate) fn commit_group(
        &self,
        mut begun: Begun,
        sync: &dyn Fn() -> Result<(), DeliveryError>,
    ) -> Result<Committed, DeliveryError> {
        let result = self.try_writer(|writer| writer.look_at_place(self.timer.clock().now_us()));
        // The sink's own sync may be Python, and take long. So no lock is held, and the engine may be closed meanwhile.
        let result = result.and_then(|()| if begun.has_outcomes() { sync() } else { Ok(()) });
        begun.stepped_ms = self.lock_dispatcher().stepped_ms(); // no rule goes by a clock that was stepped unseen
        let now_ms = self.wall.now_us() / 1000;
        let began_us = self.timer.clock().now_us();
        let result = result.and_then(|()| {
            self.try_writer(|writer| {
                let is_idle = writer.is_idle(&begun);
                let committed = writer.commit(&mut begun, &self.dispatcher, now_ms)?;
                if !is_idle {
                    writer.commits.durations.add(self.timer.clock().now_us().saturating_sub(began_us) as i64);
                }
                Ok(committed)
            })
        });
        self.or_fail(result, Some(begun))
    }

    /// The third part: messages go on the timer, and tickets get their answers.
    pub(crate) fn publish_group(&self, committed: &Committed) -> Result<bool, DeliveryError> {
        let published = self.try_writer(|writer| writer.publish(committed, &self.queue, &self.dispatcher));
        let more = self.or_fail(published, None)?;
        self.flush(&mut self.lock_dispatcher()); // a pause takes notes back, and no sender may come by
        Ok(more)
    }

    /// After an error, tickets get it. If it passes, the store is to be opened anew, and what `begun` took is kept.
    fn or_fail<T>(&self, result: Result<T, DeliveryError>, begun: Option<Begun>) -> Result<T, DeliveryError> {
        match result {
            Err(DeliveryError::Store(error)) if error.passes() => {
                let waits = DeliveryError::StoreWaits(error.clone());
                self.give_up(&waits);
                self.queue.wait_for_store(&error, begun.map(Begun::kept));
                Err(waits)
            }
            Err(error) => {
                self.give_up(&error);
                self.queue.fail(&error);
                Err(error)
            }
            done => done,
        }
    }

    // --- After a group that could not be written -------------------------------

    /// Opens the store anew, once it can be written, and commits what the senders have reported meanwhile (D6). No send is in
    /// flight.
    ///
    /// # Errors
    /// [`DeliveryError::StoreWaits`]: it still can't be written. Others end the run.
    pub(crate) fn open_anew(&self, sync: &dyn Fn() -> Result<(), DeliveryError>) -> Result<(), DeliveryError> {
        let written = self.try_writer(|writer| {
            writer.store.check_place()?;
            writer.store.try_to_write()?;
            Ok(writer.store.file())
        });
        let opened = written.and_then(|file| {
            let ownership = self.ownership.upgrade().ok_or(DeliveryError::Closed)?;
            open_store(&ownership, &self.settings, &self.timer, &self.wall, file, self.lease.as_ref())
        });
        let (store, mut sender, actions) = self.or_fail(opened, None)?;
        self.with_writer(|writer| {
            let mut dispatcher = self.lock_dispatcher();
            self.flush(&mut dispatcher);
            sender.take_over(&mut dispatcher);
            *dispatcher = sender;
            drop(dispatcher);
            writer.go_on_with(store, self.settings.horizon_ms as f64, actions);
        })?;
        self.write(sync)?;
        let noted = self.try_writer(|writer| {
            writer.store.begin()?;
            writer.store.note_unanswered()?;
            writer.store.commit()
        });
        self.or_fail(noted, None)?;
        let mut dispatcher = self.lock_dispatcher();
        let is_started = dispatcher.is_started();
        if is_started {
            dispatcher.window.start(); // unless it was started meanwhile
        }
        drop(dispatcher);
        if is_started {
            self.with_writer(|writer| writer.loader.start())?;
        }
        self.queue.go_on();
        Ok(())
    }

    /// Why the store can't be written now, if it can't: nothing is sent, and calls are refused.
    #[must_use]
    pub fn waits_for_store(&self) -> Option<String> {
        let waits = self.queue.lock().waits.as_ref().map(|(error, _)| error.to_string());
        let quiet = || self.replication().filter(|it| it.role == Role::QuietOwner);
        waits.or_else(|| quiet().map(|it| format!("{WAITS} ({})", it.trouble.unwrap_or_default())))
    }

    /// Gives the error to tickets that were begun.
    pub(crate) fn give_up(&self, error: &DeliveryError) {
        let _ = self.with_writer(|writer| writer.give_up(error)); // a closed engine has none
    }

    /// The error that ends the run if the writer panicked, which is a bug of tickwheel. The store may be in any state,
    /// so nothing more is written to it.
    pub(crate) fn writer_panicked(&self) -> DeliveryError {
        let path = self.ownership.upgrade().map(|it| it.path().to_owned()).unwrap_or_default();
        Broken::PANICKED.of(&path).into()
    }

    /// Lets a close end while the disk hangs. If the disk answers later, nothing more is written.
    pub(crate) fn leave_hanging_disk(&self) -> DeliveryError {
        let path = self.ownership.upgrade().map(|it| it.path().to_owned()).unwrap_or_default();
        let advice = "look at its disk; all that was answered is kept, and what was sent since then is sent again";
        let error = DeliveryError::Store(StoreError::new(&path, "the disk did not answer in time", advice));
        if let Some(lease) = &self.lease {
            lease.stop();
        }
        self.queue.fail(&error);
        error
    }

    /// Sets whether the sink sends to destinations that messages name; before the start.
    ///
    /// # Errors
    /// It does not, and the store has some.
    pub(crate) fn take_named(&self, named: TakesNamed) -> Result<(), DeliveryError> {
        let count = self.with_writer(|writer| {
            writer.takes_named = named;
            writer.store.all_destinations().count()
        })?;
        if named == TakesNamed::All {
            self.lock_dispatcher().measures.changed_us = None;
        }
        if named != TakesNamed::No || count == 0 {
            return Ok(());
        }
        Err(DeliveryError::Usage(format!("the store has destinations: {TAKES_NO_NAMED}")))
    }

    /// The named destinations of the store, as of the last commit. Their secrets stay in the store.
    pub(crate) fn destinations(&self) -> Result<BTreeMap<String, NamedSettings>, DeliveryError> {
        self.ask_writer(|writer| {
            let read = |it: &StoredDestination| {
                let stored: NamedSettings = serde_json::from_str(&it.settings).unwrap_or_default();
                (
                    it.name.to_string(),
                    NamedSettings { paused: Some(it.paused_ms.is_some()), ..stored.without_secrets() },
                )
            };
            writer.store.all_destinations().map(read).collect()
        })
    }

    /// The tenants that were set or paused, as of the last commit.
    pub(crate) fn tenants(&self) -> Result<BTreeMap<String, TenantSettings>, DeliveryError> {
        self.ask_writer(|writer| {
            let read = |it: &StoredTenant| {
                let stored: TenantSettings =
                    it.settings.as_deref().and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
                (it.name.to_string(), TenantSettings { paused: Some(it.paused_ms.is_some()), ..stored })
            };
            writer.store.set_tenants().values().map(read).collect()
        })
    }

    /// Sends a test message to a named destination, which is in no store. Returns what came back, and how long it took; `None`
    /// if no destination has this name. It waits for the answer, at most for the time-out.
    ///
    /// # Errors
    /// The system gives no thread.
    #[cfg(feature = "http")]
    pub fn test_destination(&self, name: &str) -> Result<Option<(Verdict, Duration)>, DeliveryError> {
        let stored = self.ask_writer(|writer| writer.store.destination(name).map(|it| it.settings.clone()))?;
        let Some(stored) = stored else { return Ok(None) };
        let settings = serde_json::from_str(&stored).map_err(|_| {
            DeliveryError::Usage(format!("this version can't read the settings of {name}: set it again"))
        })?;
        let Settings { allowed, sink_timeout_ms, .. } = &self.settings;
        try_out(name, settings, allowed, Duration::from_millis(*sink_timeout_ms)).map(Some)
    }

    /// Why each send to this address is refused, if its host is a literal address inside that is not allowed (D23).
    #[cfg(feature = "http")]
    #[must_use]
    pub fn why_refused(&self, url: &str) -> Option<String> {
        let address = HttpAddress::parse(url).ok()?;
        self.settings.allowed.check_host(address.host()).err().map(|error| error.to_string())
    }

    /// Sets how many sends there may be at a time; before the start.
    pub(crate) fn set_places(&self, limits: PlaceLimits) {
        self.lock_dispatcher().to[0].places.set_limits(limits);
        let _ = self.place_limits.set(limits);
    }

    /// How many sends there may be at a time.
    #[must_use]
    pub fn places(&self) -> PlaceLimits {
        self.place_limits.get().copied().unwrap_or(PlaceLimits::NONE)
    }

    // --- Steps of a sender ---------------------------------------------------

    /// Takes the next messages to send, with the number of the send. `None` if nothing can be sent now.
    pub(crate) fn take_locked(
        &self,
        dispatcher: &mut Dispatcher,
        most: usize,
        most_bytes: usize,
        is_cut_off: bool,
    ) -> Option<(u64, Vec<Delivery>)> {
        dispatcher.advance();
        self.flush(dispatcher);
        if let Some(lease) = &self.lease {
            dispatcher.events.extend(lease.change().map(|it| match it {
                Ok(why) => Event::StoreWaits { reason: format!("{WAITS} ({why}); it is tried until it can be") },
                Err(after_ms) => Event::StoreGoesOn { after_ms },
            }));
        }
        if self.queue.is_behind(self.timer.clock().now_us()) || self.lease.as_ref().is_some_and(|it| !it.is_held()) {
            return None;
        }
        let time_out = is_cut_off.then(|| Duration::from_millis(self.settings.sink_timeout_ms));
        let taken = dispatcher.take(most, most_bytes, time_out);
        self.flush(dispatcher);
        if dispatcher.limit.is_wanted || std::mem::take(&mut dispatcher.wants_load) {
            self.queue.wake();
        }
        taken
    }

    /// A sink has answered.
    pub(crate) fn settle(&self, flight: u64, verdicts: Verdicts, position: Option<String>) {
        self.settle_locked(&mut self.lock_dispatcher(), flight, verdicts, position);
    }

    pub(crate) fn settle_locked(
        &self,
        dispatcher: &mut Dispatcher,
        flight: u64,
        verdicts: Verdicts,
        position: Option<String>,
    ) {
        dispatcher.settle(flight, verdicts);
        self.report(dispatcher, position);
    }

    fn report(&self, dispatcher: &mut Dispatcher, position: Option<String>) {
        self.queue.report(&mut dispatcher.outcomes, position, self.timer.clock().now_us());
        if dispatcher.window.has_needy_lanes || dispatcher.window.has_leaving() {
            self.queue.wake();
        }
    }

    /// Whether this send still waits for its answer: it has no answer and was not cut off.
    #[cfg(test)]
    pub(crate) fn is_in_flight(&self, flight: u64) -> bool {
        self.lock_dispatcher().is_in_flight(flight)
    }

    /// Closes the engine, and the store.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn close(&self, sends: Sends) -> Result<Summary, DeliveryError> {
        self.timer.close();
        self.queue.stop();
        let Some(mut writer) = self.writer.lock().take() else { return Ok(self.summary()) };
        let is_usable =
            !matches!(self.queue.lock().failure, Some(DeliveryError::Store(_))) && !self.dispatcher.is_poisoned();
        let mut dispatcher = self.lock_dispatcher();
        dispatcher.halt();
        let mut late = std::mem::take(&mut self.queue.lock().outcomes);
        late.append(&mut dispatcher.outcomes);
        let ended = if is_usable { writer.end(&dispatcher, &late, sends) } else { Ok(()) };
        drop(dispatcher);
        if is_usable && ended.is_ok() {
            writer.store.end_chain();
        }
        if !is_usable || writer.checkpoints.as_ref().is_some_and(Checkpoints::are_failing) {
            writer.store.keep_log();
        }
        writer.give_up(&DeliveryError::Closed);
        self.queue.reject(&DeliveryError::Closed);
        let mut summary = writer.summary;
        summary.cancels_unknown = writer.store.remembered_cancels();
        *self.percentiles.lock() = writer.lateness.percentiles();
        self.queue.lock().summary = summary;
        ended.map(|()| summary).map_err(|broken| broken.of(writer.store.path()).into())
    }

    // --- Inside --------------------------------------------------------------

    pub(crate) fn lock_dispatcher(&self) -> MutexGuard<'_, Dispatcher> {
        self.dispatcher.lock()
    }

    /// Runs this with the writer of an open engine.
    pub(crate) fn with_writer<T>(&self, run: impl FnOnce(&mut Writer) -> T) -> Result<T, DeliveryError> {
        self.writer.lock().as_mut().map(run).ok_or(DeliveryError::Closed)
    }

    /// The same for a question of another thread. The writer has its lock while a group waits for the chain, which may be away for
    /// long.
    ///
    /// # Errors
    /// [`DeliveryError::StoreWaits`]: the chain does not answer.
    fn ask_writer<T>(&self, ask: impl FnOnce(&mut Writer) -> T) -> Result<T, DeliveryError> {
        let Some(lease) = &self.lease else { return self.with_writer(ask) };
        let pause = Parker::new();
        loop {
            if let Some(mut writer) = self.writer.try_lock() {
                return writer.as_mut().map(ask).ok_or(DeliveryError::Closed);
            }
            let figures = lease.figures();
            if figures.role == Role::QuietOwner && figures.lag_rows > 0 {
                let path = self.ownership.upgrade().map(|it| it.path().to_owned()).unwrap_or_default();
                let what = figures.trouble.unwrap_or_else(|| "PostgreSQL does not answer".to_owned());
                return Err(DeliveryError::StoreWaits(StoreError::new(
                    &path,
                    format!("{WAITS} ({what})"),
                    "try again",
                )));
            }
            pause.park_timeout(Duration::from_millis(5));
        }
    }

    /// Does the same for a function that may fail. The error names the store.
    pub(crate) fn try_writer<T>(&self, run: impl FnOnce(&mut Writer) -> store::Result<T>) -> Result<T, DeliveryError> {
        self.with_writer(|writer| run(writer).map_err(|broken| broken.of(writer.store.path()).into()))?
    }

    /// Gives outcomes from the dispatcher to the writer. The caller holds the dispatcher's lock, so that outcomes keep
    /// their order.
    pub(crate) fn flush(&self, dispatcher: &mut Dispatcher) {
        if !dispatcher.outcomes.is_empty() {
            self.queue.report(&mut dispatcher.outcomes, None, self.timer.clock().now_us());
        }
    }
}

/// Of a replicated store.
const WAITS: &str = "nothing could be written for two seconds";

fn history_id(store_id: &str, restored: Option<&str>) -> String {
    restored.map_or_else(|| store_id.to_owned(), |it| format!("{store_id}-{it}"))
}

/// Opens the store, with its sender before the start. `before`: see [`Options::before`].
fn open_store(
    ownership: &Arc<Ownership>,
    settings: &Settings,
    timer: &Arc<Timer<Armed>>,
    wall: &Arc<dyn WallTime>,
    before: Option<FileId>,
    lease: Option<&Arc<Lease>>,
) -> Result<(Store, Dispatcher, Vec<Action>), DeliveryError> {
    let (clock, wall_time) = (timer.clone(), wall.clone());
    let mut options = Options::new(
        settings.keep_ids_ms as i64,
        Box::new(move || clock.clock().now_ms() as i64),
        Box::new(move || wall_time.now_us() / 1000),
    );
    options.limits = settings.limits;
    options.before = before;
    options.replicate = settings.replicate.clone().zip(lease.cloned());
    options.guard = Some(ownership.clone());
    let path = ownership.path();
    let store = Store::open(path, options)?;
    let mut dispatcher = Dispatcher::new(
        timer.clone(),
        wall.clone(),
        settings.bounds,
        settings.is_global,
        settings.retry.clone(),
        Duration::from_millis(settings.unanswered_for_ms),
        settings.seed,
    );
    let kept = || {
        let restored = store.get_meta::<String>(RESTORED)?;
        Ok((store.get_meta::<i64>(PAUSED)?, store.paused_lanes()?, store.running_actions()?, restored))
    };
    let (paused_ms, paused_lanes, actions, restored) = kept().map_err(|broken: Broken| broken.of(path))?;
    let of_history = history_id(store.id(), restored.as_deref());
    dispatcher.owner = lease.map(|it| Arc::new(Owner { store: of_history, epoch: it.epoch() }));
    pause_keys(&paused_lanes, &mut dispatcher)?;
    dispatcher.to[0].was_down = store.was_down();
    let Settings { tenant_concurrency: concurrency, tenant_rate: rate, .. } = *settings;
    dispatcher.limit_tenants(TenantLimits { concurrency, rate, ..TenantLimits::default() });
    store.set_tenants().values().for_each(|it| dispatcher.set_tenant(it));
    dispatcher.pause(paused_ms.is_some());
    Ok((store, dispatcher, actions))
}

/// Pauses the keys that an earlier process was asked to pause.
fn pause_keys(lanes: &[i64], dispatcher: &mut Dispatcher) -> Result<(), DeliveryError> {
    if !lanes.is_empty() && dispatcher.window.is_global() {
        let text = "keys are paused in this store, and in one order of all messages none can be: resume them first \
                    (tickwheel resume STORE --key KEY), or deliver in order per key";
        return Err(DeliveryError::Usage(text.to_owned()));
    }
    dispatcher.pause_keys(lanes);
    Ok(())
}

#[cfg(test)]
mod tests;
