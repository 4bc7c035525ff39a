package ctl

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/termbridge/termbridge/control"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/internal/vt"
)

// A cell is what a table shows at one place.
type cell struct{ text, color string }

// Colours, as SGR parameters.
const (
	bold   = "1"
	green  = "32"
	yellow = "33"
	red    = "31"
	dim    = "2"
)

// colors says how a state looks: what wants something of the user stands out.
var colors = map[string]string{
	string(control.Blocked): yellow,
	string(control.Working): green,
	string(control.Done):    dim,
}

// table prints sessions for people: columns in which nothing stands are left out,
// and the last is cut at the edge of the terminal.
func (c *call) table(sessions []control.SessionInfo) error {
	if len(sessions) == 0 {
		_, err := fmt.Fprintln(c.Stderr, "no terminals")
		return err
	}
	header := []string{"ID", "NAME", "GROUP", "STATUS", "STATE", "EXIT", "WHERE", "CWD", "COMMAND"}
	rows := make([][]cell, 0, len(sessions)+1)
	row := make([]cell, len(header))
	for i, h := range header {
		row[i] = cell{h, bold}
	}
	rows = append(rows, row)
	for _, s := range sessions {
		rows = append(rows, cells(s))
	}

	widths := make([]int, len(header))
	for i := range header {
		for _, row := range rows[1:] {
			if row[i].text != "" {
				widths[i] = max(widths[i], len(header[i]), vt.Width(row[i].text))
			}
		}
	}
	limit, colored := terminalColumns(c.Stdout), wantColor(c.Stdout)
	var b strings.Builder
	for _, row := range rows {
		room := limit
		var line strings.Builder
		for i, cell := range row {
			if widths[i] == 0 {
				continue
			}
			s := cell.text
			if limit > 0 && i == len(row)-1 {
				s = cut(s, room)
			}
			padding := strings.Repeat(" ", widths[i]-min(widths[i], vt.Width(s))+2)
			room -= widths[i] + 2
			if colored && cell.color != "" && s != "" {
				s = "\x1b[" + cell.color + "m" + s + "\x1b[0m"
			}
			line.WriteString(s + padding)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(c.Stdout, b.String())
	return err
}

// cells returns the row of a session.
func cells(s control.SessionInfo) []cell {
	exit := cell{}
	switch {
	case s.ExitCode == nil:
	case s.Signal != "":
		exit = cell{s.Signal, red}
	case *s.ExitCode == 0:
		exit = cell{"0", green}
	case *s.ExitCode < 0:
		exit = cell{"unknown", red}
	default:
		exit = cell{fmt.Sprint(*s.ExitCode), red}
	}
	where := s.Environment
	switch {
	case s.Transport == control.TransportClient:
		where = "editor"
	case where == control.TransportLocal:
		where = ""
	}
	name := s.Name
	if name == s.ID {
		name = ""
	}
	row := []cell{
		{s.ID, bold}, {name, ""}, {s.Group, ""}, {s.Status, ""}, {string(s.AgentState), colors[string(s.AgentState)]},
		exit, {where, ""}, {s.Cwd, ""}, {s.Command, ""},
	}
	for i := range row {
		row[i].text = text.Visible(row[i].text, "")
	}
	return row
}

// cut returns what of s fits into n columns.
func cut(s string, n int) string {
	if vt.Width(s) <= n {
		return s
	}
	end := 0
	for i := range s { // behind i there is room for the mark
		if vt.Width(s[:i])+1 > n {
			break
		}
		end = i
	}
	return s[:end] + "…"
}

// wantColor reports whether out is to get colours: a terminal that has some, unless
// the user said otherwise (no-color.org, CLICOLOR).
func wantColor(out io.Writer) bool {
	if os.Getenv("NO_COLOR") != "" {
		return false
	}
	if force := os.Getenv("CLICOLOR_FORCE"); force != "" && force != "0" {
		return true
	}
	return terminalColumns(out) > 0 && os.Getenv("TERM") != "dumb" && os.Getenv("CLICOLOR") != "0"
}

// terminalColumns returns how wide the terminal is that w is, or 0 if it is none.
func terminalColumns(w any) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, ok := terminalSize(f)
	if !ok {
		return 0
	}
	return max(size.Cols, 20)
}
