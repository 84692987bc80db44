// In Kafka's own package, because the constructor of its wheel and its list of tasks are visible only there.
package org.apache.kafka.server.util.timer;

import java.util.ArrayDeque;
import java.util.SplittableRandom;
import java.util.concurrent.DelayQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.utils.Time;

/**
 * Measures one work on Kafka's timer, warm, and prints nanoseconds for one timer:
 * {@code KafkaTimer WORK SIDE COUNT WARM_UP_ROUNDS}. The works are those of benches/peers/src/works.rs.
 *
 * <p>The whole work is done in each round, on a new timer, and only the last round counts. Tick and wheel size are those of
 * Kafka's request timer. The clock of the wheel alone is moved by hand: 0 at the start, one step for each millisecond.
 */
public final class KafkaTimer {
    private static final long TICK_MS = 1;
    private static final int WHEEL_SIZE = 20;
    private static final int HOUR_MS = 3_600_000;
    private static final int MINUTE_MS = 60_000;
    private static final int ROLLING_FOR_MS = 40_000;
    private static final int ROLLING_DELAY_MS = 30_000;

    private KafkaTimer() {}

    /** What waits. Kafka's users derive theirs from TimerTask too: a request is its own task. */
    private static final class Task extends TimerTask {
        final int payload;

        Task(long delayMs, int payload) {
            super(delayMs);
            this.payload = payload;
        }

        @Override
        public void run() {
            throw new IllegalStateException("no executor runs it");
        }
    }

    /** The timer under test. */
    private interface Side extends AutoCloseable {
        void add(Task task);

        int size();

        @Override
        void close();
    }

    /** The timer as a program uses it, with its locks and its own clock. Nothing advances it. */
    private static final class WithLocks implements Side {
        private final SystemTimer timer = new SystemTimer("bench", TICK_MS, WHEEL_SIZE, Time.SYSTEM.hiResClockMs());

        @Override
        public void add(Task task) {
            timer.add(task);
        }

        @Override
        public int size() {
            return timer.size();
        }

        @Override
        public void close() {
            timer.close();
        }
    }

    /** The wheel without the timer's lock, for one thread. */
    private static final class Wheel implements Side {
        private final AtomicInteger count = new AtomicInteger();
        private final DelayQueue<TimerTaskList> buckets = new DelayQueue<>();
        private final TimingWheel wheel = new TimingWheel(TICK_MS, WHEEL_SIZE, 0, count, buckets);
        final int[] fired;
        int firedCount;
        long nowMs;

        Wheel(int mostFired) {
            fired = new int[mostFired];
        }

        @Override
        public void add(Task task) {
            if (!wheel.add(new TimerTaskEntry(task, nowMs + task.delayMs))) {
                throw new IllegalStateException("due at once");
            }
        }

        /** Moves the clock by a millisecond, as SystemTimer.advanceClock does when a bucket is due. */
        void tick() {
            nowMs++;
            // Not poll, which asks the system's clock whether the first bucket is due.
            for (var first = buckets.peek(); first != null && first.getExpiration() <= nowMs; first = buckets.peek()) {
                buckets.remove(first);
                wheel.advanceClock(first.getExpiration());
                first.flush(this::addAgain);
            }
        }

        private void addAgain(TimerTaskEntry entry) {
            if (!wheel.add(entry) && !entry.cancelled()) {
                fired[firedCount++] = ((Task) entry.timerTask).payload;
            }
        }

        @Override
        public int size() {
            return count.get();
        }

        @Override
        public void close() {}
    }

    /** One round of a work. */
    private interface Work {
        double ns(Side side, int count);
    }

    private static double insert(Side side, int count) {
        var tasks = tasks(count, HOUR_MS, 1);
        long started = System.nanoTime();
        for (var task : tasks) {
            side.add(task);
        }
        double ns = perTimer(started, count);
        check(side.size() == count, "all are pending");
        return ns;
    }

    private static double cancel(Side side, int count) {
        var tasks = filled(side, count);
        long started = System.nanoTime();
        for (var task : tasks) {
            task.cancel();
        }
        double ns = perTimer(started, count);
        check(side.size() == 0, "none is pending");
        return ns;
    }

    /** The delay of a task is final, so a new task takes the place of the old one. */
    private static double reset(Side side, int count) {
        var tasks = filled(side, count);
        var again = tasks(count, HOUR_MS, 3);
        long started = System.nanoTime();
        for (int at = 0; at < count; at++) {
            tasks[at].cancel();
            side.add(again[at]);
        }
        double ns = perTimer(started, count);
        check(side.size() == count, "all are pending");
        return ns;
    }

    private static double fire(Side side, int count) {
        var wheel = (Wheel) side;
        var tasks = tasks(count, MINUTE_MS, 1);
        for (var task : tasks) {
            wheel.add(task);
        }
        var firedUntil = new int[MINUTE_MS + 1];
        long started = System.nanoTime();
        for (int now = 1; now <= MINUTE_MS; now++) {
            wheel.tick();
            firedUntil[now] = wheel.firedCount;
        }
        double ns = perTimer(started, count);
        check(wheel.firedCount == count && wheel.size() == 0, "all fire");
        var seen = new boolean[count];
        for (int now = 1; now <= MINUTE_MS; now++) {
            for (int at = firedUntil[now - 1]; at < firedUntil[now]; at++) {
                int payload = wheel.fired[at];
                long earlyMs = tasks[payload].delayMs - now;
                check(!seen[payload], "each fires once");
                check(earlyMs >= 0 && earlyMs < TICK_MS, "in order, never late, less than a tick early");
                seen[payload] = true;
            }
        }
        return ns;
    }

    private static double rolling(Side side, int count) {
        var wheel = (Wheel) side;
        int perMs = Math.max(1, count / ROLLING_FOR_MS);
        int lag = 10 * perMs;
        var live = new ArrayDeque<Task>(lag + 2);
        int payload = 0;
        long started = System.nanoTime();
        for (int now = 0; now < ROLLING_FOR_MS; now++) {
            for (int each = 0; each < perMs; each++) {
                var added = new Task(ROLLING_DELAY_MS, payload++);
                wheel.add(added);
                live.addLast(added);
                if (live.size() > lag) {
                    var task = live.removeFirst();
                    if (task.payload % 100 != 0) {
                        task.cancel();
                    }
                }
            }
            wheel.tick();
        }
        double ns = perTimer(started, payload);
        int due = (ROLLING_FOR_MS - ROLLING_DELAY_MS) * perMs / 100;
        check(Math.abs(wheel.firedCount - due) <= 1, "those that stayed have fired");
        for (int at = 0; at < wheel.firedCount; at++) {
            check(wheel.fired[at] % 100 == 0, "none that was cancelled has fired");
        }
        return ns;
    }

    private static Task[] tasks(int count, int withinMs, long seed) {
        var random = new SplittableRandom(seed);
        var tasks = new Task[count];
        for (int payload = 0; payload < count; payload++) {
            tasks[payload] = new Task(random.nextInt(1, withinMs + 1), payload);
        }
        return tasks;
    }

    /** Adds tasks that are due within an hour, and returns them in another order. */
    private static Task[] filled(Side side, int count) {
        var tasks = tasks(count, HOUR_MS, 1);
        for (var task : tasks) {
            side.add(task);
        }
        var random = new SplittableRandom(2);
        for (int at = count - 1; at > 0; at--) {
            int other = random.nextInt(at + 1);
            var task = tasks[at];
            tasks[at] = tasks[other];
            tasks[other] = task;
        }
        return tasks;
    }

    private static double perTimer(long started, int count) {
        return (System.nanoTime() - started) / (double) count;
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException("not so: " + what);
        }
    }

    public static void main(String[] arguments) {
        Work work = switch (arguments[0]) {
            case "insert" -> KafkaTimer::insert;
            case "cancel" -> KafkaTimer::cancel;
            case "reset" -> KafkaTimer::reset;
            case "fire" -> KafkaTimer::fire;
            case "rolling" -> KafkaTimer::rolling;
            default -> throw new IllegalArgumentException("no work " + arguments[0]);
        };
        int count = Integer.parseInt(arguments[2]);
        int warmUpRounds = Integer.parseInt(arguments[3]);
        double ns = 0;
        for (int round = 0; round <= warmUpRounds; round++) {
            System.gc(); // of the round before, so that this one finds an empty young generation
            try (Side side = arguments[1].equals("wheel") ? new Wheel(count) : new WithLocks()) {
                ns = work.ns(side, count);
            }
        }
        System.out.println(ns);
    }
}
