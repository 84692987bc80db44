// River: PostgreSQL. ../common.py says what the program does. Durable: each accept is a commit.
//
// River is woken by new jobs; nothing wakes it for a job that gets due, so it asks at an interval.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	tooLate         = 75
	spare           = 3 * time.Second
	tail            = 10 * time.Second
	overdueWithin   = 60 * time.Second
	fetchEvery      = 10 * time.Millisecond
	mostJobsAtOnce  = 1_000
	connectionsMore = 10
)

var text = strings.Repeat("x", 80)

type request struct {
	Do       string  `json:"do"`
	Count    int     `json:"count"`
	Rate     int     `json:"rate"`
	LeadS    float64 `json:"lead_s"`
	Batch    int     `json:"batch"`
	Clients  int     `json:"clients"`
	Postgres string  `json:"postgres"`
	Out      string  `json:"out"`
}

type job struct {
	Number int    `json:"number"`
	Text   string `json:"text"`
}

func (job) Kind() string { return "job" }

// came has the number of each job that ran, and when.
type came struct {
	mutex  sync.Mutex
	number []int
	atUs   []int64
}

func (c *came) ran(number int) {
	at := time.Now().UnixMicro()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.number, c.atUs = append(c.number, number), append(c.atUs, at)
}

func (c *came) count() int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return len(c.number)
}

type worker struct {
	river.WorkerDefaults[job]
	came *came
}

func (w *worker) Work(_ context.Context, job *river.Job[job]) error {
	w.came.ran(job.Args.Number)
	return nil
}

func main() {
	log.SetFlags(0)
	var asked request
	must(json.Unmarshal([]byte(os.Args[1]), &asked))
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(asked.Postgres)
	must(err)
	config.MaxConns = int32(asked.Clients + connectionsMore)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	must(err)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	must(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	must(err)

	found := &came{}
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{came: found})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown:     fetchEvery,
		FetchPollInterval: fetchEvery,
		Logger:            slog.New(slog.NewTextHandler(io.Discard, nil)),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: mostJobsAtOnce}},
		Workers:           workers,
	})
	must(err)

	if asked.Do == "accept" {
		hour := time.Now().Add(time.Hour)
		began := time.Now()
		put(ctx, client, asked, func(n int) time.Time { return hour.Add(time.Duration(n) * time.Millisecond) })
		fmt.Printf("{\"took_s\": %f}\n", time.Since(began).Seconds())
		return
	}
	run(ctx, client, asked, found)
}

func run(ctx context.Context, client *river.Client[pgx.Tx], asked request, found *came) {
	firstMs := time.Now().Add(time.Duration(asked.LeadS * float64(time.Second))).UnixMilli()
	due := func(n int) time.Time { return time.UnixMilli(firstMs + int64(n)*1000/int64(asked.Rate)) }
	put(ctx, client, asked, due)
	if late := time.Until(due(0)) - spare; late < 0 {
		log.Printf("all were handed in %v too late", -late)
		os.Exit(tooLate)
	}
	last := due(asked.Count - 1)
	end := last.Add(tail)
	if asked.Do == "overdue" {
		time.Sleep(time.Until(last.Add(100 * time.Millisecond)))
		end = time.Now().Add(overdueWithin)
	}
	began := time.Now().UnixMicro()
	must(client.Start(ctx))
	for found.count() < asked.Count && time.Now().Before(end) {
		time.Sleep(100 * time.Millisecond)
	}
	file, err := os.Create(asked.Out)
	must(err)
	lines := bufio.NewWriter(file)
	found.mutex.Lock()
	for at, number := range found.number {
		fmt.Fprintf(lines, "%d %d\n", number, found.atUs[at])
	}
	found.mutex.Unlock()
	must(lines.Flush())
	must(file.Close())
	fmt.Printf("{\"first_ms\": %d, \"began_us\": %d}\n", firstMs, began)
}

// put hands in all jobs: each client every so many-th batch, one after the other.
func put(ctx context.Context, client *river.Client[pgx.Tx], asked request, due func(int) time.Time) {
	var all sync.WaitGroup
	for first := range asked.Clients {
		all.Go(func() {
			for at := first * asked.Batch; at < asked.Count; at += asked.Clients * asked.Batch {
				end := min(at+asked.Batch, asked.Count)
				if end-at == 1 {
					_, err := client.Insert(ctx, job{at, text}, &river.InsertOpts{ScheduledAt: due(at)})
					must(err)
					continue
				}
				jobs := make([]river.InsertManyParams, 0, end-at)
				for n := at; n < end; n++ {
					jobs = append(jobs, river.InsertManyParams{Args: job{n, text}, InsertOpts: &river.InsertOpts{ScheduledAt: due(n)}})
				}
				_, err := client.InsertManyFast(ctx, jobs)
				must(err)
			}
		})
	}
	all.Wait()
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
