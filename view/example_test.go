package view_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"regexp"
	"time"

	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
	"github.com/termbridge/termbridge/terminal/terminaltest"
	"github.com/termbridge/termbridge/view"
)

func ExamplePlain() {
	fmt.Println(view.Plain("\x1b[32mok\x1b[0m\r\n 10%\r100%\r\nlonger\rshort"))
	// Output:
	// ok
	// 100%
	// shortr
}

func ExamplePlainer() {
	p := view.Plainer{Max: 1 << 10}
	for _, piece := range []string{"compiling\r\nlinking 1", "0%\rlinking 90%", "\r\x1b[2", "Klinked\r\n"} {
		fmt.Fprint(&p, piece)
		fmt.Printf("%q\n", p.String())
	}
	// Output:
	// "compiling\nlinking 1"
	// "compiling\nlinking 90%"
	// "compiling\nlinking 90%"
	// "compiling\nlinked\n"
}

// manager is any Manager; this one runs the programs of the test suite.
func manager() terminal.Manager {
	return memterm.New(&memterm.Options{Programs: terminaltest.Programs()})
}

func ExamplePager() {
	m := manager()
	defer m.Close()
	ctx := context.Background()
	t, err := m.Start(ctx, terminal.Command{Line: "lines 1000"})
	if err != nil {
		log.Fatal(err)
	}
	<-t.Done()

	pager := view.NewPager(t, nil)
	for range 2 {
		page, err := pager.Read(ctx, 0, 3)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("line", page.From, page.Lines, "and", page.Remaining, "more of", page.Total)
	}
	page, err := pager.Read(ctx, -1, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("line", page.From, page.Lines, page.Info.Exit)
	// Output:
	// line 1 [0000000 0000001 0000002] and 997 more of 1000
	// line 4 [0000003 0000004 0000005] and 994 more of 1000
	// line 1000 [0000999] exit code 0
}

func ExampleWaitFor() {
	m := manager()
	defer m.Close()
	ctx := context.Background()
	t, err := m.Start(ctx, terminal.Command{Line: `drip 10ms loading "listening on port 8080" serving`})
	if err != nil {
		log.Fatal(err)
	}
	ev, err := view.WaitFor(ctx, t, view.Until{
		Regexp:  regexp.MustCompile(`port (\d+)`),
		Timeout: 10 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ev.Reason, ev.Groups)

	ev, err = view.WaitFor(ctx, t, view.Until{Cursor: ev.Cursor})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ev.Reason, ev.Info.Exit)
	// Output:
	// match [8080]
	// end exit code 0
}

func ExampleStop() {
	m := manager()
	defer m.Close()
	ctx := context.Background()
	t, err := m.Start(ctx, terminal.Command{Line: "hold"})
	if err != nil {
		log.Fatal(err)
	}
	result, _, _ := view.Stop(ctx, m, t.Info().ID)
	fmt.Println(result)
	result, _, _ = view.Stop(ctx, m, "no such id")
	fmt.Println(result)
	for _, info := range view.Completed(m) {
		fmt.Println(info.Command, info.Outcome)
	}
	// Output:
	// ended
	// not_found
	// hold stopped
}

// A model reads a menu and chooses from it.
func ExampleScreen() {
	m := memterm.New(&memterm.Options{Programs: map[string]memterm.Program{"menu": menu}})
	defer m.Close()
	ctx := context.Background()
	t, err := m.Start(ctx, terminal.Command{Line: "menu", Stdin: true, Size: terminal.Size{Rows: 5, Cols: 20}})
	if err != nil {
		log.Fatal(err)
	}

	screen := view.NewScreen(t)
	if _, err := screen.WaitFor(ctx, view.Until{Literal: "quit"}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(screen)

	keys, err := screen.Keys("Down", "Enter")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := t.WriteInput(ctx, keys); err != nil {
		log.Fatal(err)
	}
	if _, err := screen.WaitFor(ctx, view.Until{}); err != nil { // until it ends
		log.Fatal(err)
	}
	fmt.Println(screen)
	// Output:
	// [screen of 5 rows × 20 columns, full-screen program, no cursor, highlighted ⟦⟧]
	//   What next?
	//   ⟦build⟧
	//   test
	//   quit
	// [screen of 5 rows × 20 columns, cursor ▮]
	// test
	// ▮
}

// menu is a small full-screen program.
func menu(p *memterm.Process) terminal.Exit {
	entries := []string{"build", "test", "quit"}
	chosen := 0
	fmt.Fprint(p.Stdout, "\x1b[?1049h\x1b[?25l\x1b[2J\x1b[H  What next?")
	in := bufio.NewReader(p.Stdin)
	for {
		for i, entry := range entries {
			colour := "\x1b[m"
			if i == chosen {
				colour = "\x1b[7m"
			}
			fmt.Fprintf(p.Stdout, "\x1b[%d;3H%s%s\x1b[m", i+2, colour, entry)
		}
		switch key, err := in.ReadByte(); {
		case err != nil || key == '\r' || key == '\n':
			fmt.Fprintf(p.Stdout, "\x1b[?25h\x1b[?1049l%s\n", entries[chosen])
			return memterm.Code(0)
		case key == 'B': // the end of what Down sends
			chosen = min(chosen+1, len(entries)-1)
		}
	}
}
