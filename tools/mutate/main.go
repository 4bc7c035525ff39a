// Command mutate changes the code of a package one small step at a time and
// reports the changes that no test notices.
//
//	go -C tools run ./mutate [flags] PACKAGE
//
// PACKAGE is a package directory of the module above, such as ./bridge. Each
// mutant is compiled with an overlay, so the work tree stays as it is. It is run
// against the tests that reach the changed line, the fastest first, and counts
// as killed when one of them fails or hangs. A mutant that does not compile is
// not counted.
//
// The tests are those of PACKAGE and of the packages that -tests names. A line
// that no test reaches in its own process may be reached in a process that a test
// starts, so its mutants are run against every test.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("mutate: ")
	var (
		dir   = flag.String("module", "..", "the `directory` of the module")
		n     = flag.Int("n", 100, "how many mutants to try; 0 tries all")
		seed  = flag.Uint64("seed", 1, "which mutants -n picks")
		tests = flag.String("tests", "", "further `packages` whose tests count, separated by commas")
		files = flag.String("files", "", "only files whose name contains this `text`")
		procs = flag.Int("procs", 2, "how many mutants to run at once")
		least = flag.Int("least", 0, "exit with 1 if fewer `percent` are killed")
	)
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: go -C tools run ./mutate [flags] PACKAGE")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	root, err := filepath.Abs(*dir)
	check(err)
	tmp, err := os.MkdirTemp("", "mutate")
	check(err)
	defer os.RemoveAll(tmp)

	m := module{dir: root, tmp: tmp}
	target := flag.Arg(0)
	suites := []string{target}
	if *tests != "" {
		suites = append(suites, strings.Split(*tests, ",")...)
	}
	log.Printf("running the tests of %s one by one", strings.Join(suites, ", "))
	all, err := m.tests(ctx, target, suites)
	check(err)

	mutants, err := m.mutants(ctx, target, *files)
	check(err)
	random := rand.New(rand.NewPCG(*seed, 0))
	random.Shuffle(len(mutants), func(i, j int) { mutants[i], mutants[j] = mutants[j], mutants[i] })
	log.Printf("%d mutants, %d tests", len(mutants), len(all))

	r := report{want: *n}
	work := make(chan mutant)
	var workers sync.WaitGroup
	for i := range *procs {
		workers.Go(func() { // joined below
			for mu := range work {
				result, by := m.try(ctx, i, mu, all)
				if ctx.Err() == nil {
					r.add(mu, result, by)
				}
			}
		})
	}
	for _, mu := range mutants {
		if r.enough() || ctx.Err() != nil {
			break
		}
		work <- mu
	}
	close(work)
	workers.Wait()
	if !r.print(os.Stdout, target, *least) {
		os.Exit(1)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A report counts what became of the mutants. Its methods may be called
// concurrently.
type report struct {
	want int // mutants to count; 0 is all

	mu sync.Mutex
	// guards following
	killed    int
	survivors []mutant
	broken    int // did not compile
}

func (r *report) add(m mutant, result result, by string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch result {
	case doesNotCompile:
		r.broken++
		return
	case killed:
		r.killed++
	case survived:
		r.survivors = append(r.survivors, m)
	}
	fmt.Printf("%-8s %s", result, m)
	if by != "" {
		fmt.Printf("  (%s)", by)
	}
	fmt.Println()
}

func (r *report) enough() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.want > 0 && r.killed+len(r.survivors) >= r.want
}

// print writes the summary and reports whether at least least percent were killed.
func (r *report) print(w *os.File, target string, least int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.survivors, func(a, b mutant) int {
		return strings.Compare(a.String(), b.String())
	})
	fmt.Fprintf(w, "\n%s: survivors\n", target)
	for _, m := range r.survivors {
		fmt.Fprintln(w, " ", m)
	}
	total := r.killed + len(r.survivors)
	if total == 0 {
		fmt.Fprintln(w, "no mutant compiled")
		return least == 0
	}
	percent := 100 * r.killed / total
	fmt.Fprintf(w, "%s: %d of %d mutants killed (%d %%), %d did not compile\n", target, r.killed, total, percent, r.broken)
	return percent >= least
}

// writeJSON writes v to a file.
func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o666)
}
