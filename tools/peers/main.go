// Command peers measures localterm beside what else runs commands: os/exec,
// creack/pty, node-pty and tmux. It prints the table of docs/performance.md.
//
//	go -C tools run ./peers              # a minute and a half
//	go -C tools run ./peers -quick       # some seconds, and worth little
//
// Peers take turns in rounds, each in a process of its own, and the ratio is that
// of their medians to os/exec. What is not installed is skipped, with the reason.
// node-pty is looked for in -modules, a directory with node_modules:
//
//	npm install --prefix DIR @lydell/node-pty     # node-pty with its binaries
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// A result is what one process of a peer has measured.
type result struct {
	Start  float64 // seconds from start to exit of /bin/true, the median
	Flood  float64 // MB/s
	Idle   float64 // KB of memory for each idle terminal
	Thread float64 // threads more for all of them
	Stop   float64 // seconds until the stop of a tree has returned
	Left   float64 // of the three children of that tree, after it
}

// sizes are how much is measured.
type sizes struct {
	Rounds, Starts, FloodMB, Idle int
}

var (
	full  = sizes{Rounds: 5, Starts: 100, FloodMB: 32, Idle: 100}
	quick = sizes{Rounds: 1, Starts: 5, FloodMB: 1, Idle: 4}
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("peers: ")
	var (
		one     = flag.String("one", "", "measure this `peer` only, and print it as JSON")
		brief   = flag.Bool("quick", false, "measure little")
		modules = flag.String("modules", ".", "the `directory` that has node_modules with node-pty")
	)
	flag.Parse()
	size := full
	if *brief {
		size = quick
	}
	if *one != "" {
		r, err := byName(*one).measure(size, *modules)
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(r)
		}
		if err != nil {
			log.Fatalf("%s: %v", *one, err)
		}
		return
	}
	table, err := all(size, *modules, os.Args[1:])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(table)
}

func byName(name string) peer {
	i := slices.IndexFunc(peers, func(p peer) bool { return p.name == name })
	if i < 0 {
		log.Fatalf("there is no peer %q", name)
	}
	return peers[i]
}

// all measures every peer in rounds, and returns a table.
func all(size sizes, modules string, args []string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	results, skipped := map[string][]result{}, map[string]string{}
	for range size.Rounds {
		for _, p := range peers {
			if why := p.missing(modules); why != "" {
				skipped[p.name] = why
				continue
			}
			cmd := exec.Command(self, append([]string{"-one", p.name}, args...)...)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				return "", fmt.Errorf("%s: %w", p.name, err)
			}
			var r result
			if err := json.Unmarshal(out, &r); err != nil {
				return "", err
			}
			results[p.name] = append(results[p.name], r)
		}
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| \t| Start to exit\t| Flood\t| Idle, each\t| Threads\t| Stop\t| Left of 3\t|")
	fmt.Fprintln(w, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	base := results[peers[0].name]
	for _, p := range peers {
		if why := skipped[p.name]; why != "" {
			fmt.Fprintf(w, "| %s\t| skipped: %s\t| \t| \t| \t| \t| \t|\n", p.name, why)
			continue
		}
		rs := results[p.name]
		start, flood := median(rs, func(r result) float64 { return r.Start }), median(rs, func(r result) float64 { return r.Flood })
		fmt.Fprintf(w, "| %s\t| %.2f (%.2f ms)\t| %.2f (%.0f MB/s)\t| %.0f KB\t| %+.0f\t| %.0f ms\t| %.0f\t|\n", p.name,
			start/median(base, func(r result) float64 { return r.Start }), start*1e3,
			flood/median(base, func(r result) float64 { return r.Flood }), flood,
			median(rs, func(r result) float64 { return r.Idle }), median(rs, func(r result) float64 { return r.Thread }),
			median(rs, func(r result) float64 { return r.Stop })*1e3, median(rs, func(r result) float64 { return r.Left }))
	}
	w.Flush()
	fmt.Fprintf(&b, "\n%s, %s/%s, %d processors, %d rounds, %d starts, %d MB, %d idle ones each\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), size.Rounds, size.Starts, size.FloodMB, size.Idle)
	return b.String(), nil
}

func median(rs []result, of func(result) float64) float64 {
	values := make([]float64, len(rs))
	for i, r := range rs {
		values[i] = of(r)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// timed returns the median time of n calls of f, in seconds.
func timed(n int, f func() error) (float64, error) {
	var took []time.Duration
	for range n {
		begun := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(begun))
	}
	slices.SortFunc(took, cmp.Compare)
	return took[n/2].Seconds(), nil
}

// memory returns the resident memory of a process in KB, and its threads.
func memory(pid int) (kb, threads float64) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) < 2:
		case fields[0] == "VmRSS:":
			kb, _ = strconv.ParseFloat(fields[1], 64)
		case fields[0] == "Threads:":
			threads, _ = strconv.ParseFloat(fields[1], 64)
		}
	}
	return kb, threads
}
