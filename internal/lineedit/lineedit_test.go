package lineedit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// typed types text into m, and returns what a program reads, a line or an end of
// file each, and what is left in the line.
func typed(text string, m *Modes) (read []string, rest string) {
	var l Line
	for i := range len(text) {
		switch effect := l.Type(text[i], m); effect {
		case Typed:
		case Ended, EOF:
			read = append(read, string(l.Text))
			l = Line{}
		default:
			read = nil
			if m.NoFlush {
				continue
			}
		}
	}
	return read, string(l.Text)
}

func TestType(t *testing.T) {
	raw := Modes{CR: '\r', NoFlush: true}
	keep := Default
	keep.NoFlush = true
	for _, c := range []struct {
		text  string
		modes *Modes
		read  []string
		rest  string
	}{
		{"a\nb", &Default, []string{"a\n"}, "b"},
		{"a\rb", &Default, []string{"a\n"}, "b"},
		{"a\x04\x04b", &Default, []string{"a", ""}, "b"},
		{"ab\x7fc", &Default, nil, "ac"},
		{"\x7fa", &Default, nil, "a"},
		{"aé\x7fb", &Default, nil, "ab"},
		{"a😀\x7f\x7fb", &Default, nil, "b"},
		{"\xa9\x7fb", &Default, nil, "\xa9b"}, // no whole character
		{"one two\x17", &Default, nil, "one "},
		{"one two  \x17x", &Default, nil, "one x"},
		{"a,b_c\x17", &Default, nil, "a,"},
		{"été\x17x", &Default, nil, "x"},
		{"a→b\x17", &Default, nil, ""},
		{"\x17a", &Default, nil, "a"},
		{"ab\x15c", &Default, nil, "c"},
		{"a\x16\nb", &Default, nil, "a\nb"},
		{"a\x16\x03\x16\x16\x16\x7f", &Default, nil, "a\x03\x16\x7f"},
		{"a\x12b\x13c\x11d", &Default, nil, "abcd"},
		{"a\nb\x03c", &Default, nil, "c"},
		{"ab\x1ac", &Default, nil, "c"},
		{"ab\x1cc", &Default, nil, "c"},
		{"ab\x03c", &keep, nil, "abc"},
		{"a\x00b", &Default, nil, "a\x00b"},
		{"\x03\x04\x7f\x15\x16\x17\r\x12\x00", &raw, nil, "\x03\x04\x7f\x15\x16\x17\r\x12\x00"},
		{"a\rb", &Modes{}, nil, "ab"},
	} {
		read, rest := typed(c.text, c.modes)
		if !slices.Equal(read, c.read) || rest != c.rest {
			t.Errorf("%q: read %q and %q is left; want %q, %q", c.text, read, rest, c.read, c.rest)
		}
	}
	for key, want := range map[string]Effect{"\x03": Interrupt, "\x1c": Quit, "\x1a": Suspend, "\n": Ended, "\x04": EOF, "x": Typed} {
		if got := new(Line).Type(key[0], &Default); got != want {
			t.Errorf("%q: effect %d, want %d", key, got, want)
		}
	}
}

// The length of the longest line is what the kernel would have to keep, and the
// line itself is not changed.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		before, text  string
		line, longest int
	}{
		{"", "abc", 3, 3},
		{"ab", "c\nde", 2, 3},
		{"ab", "cd\x7f\x7f\x7fe", 2, 4},
		{"abcde", "\x15x\x03yz\x04", 0, 2},
		{"abcde", "\x15", 0, 0},
		{"", "aaa\x16\nbb\n", 0, 6},
		{"a b", "c\x17dd", 4, 4},
		{"aaa", "\x1abb\x1c", 0, 2},
		{"", strings.Repeat("é", 3), 6, 6},
	} {
		var l Line
		for i := range len(c.before) {
			l.Type(c.before[i], &Default)
		}
		after, longest := l.Check(c.text, &Default)
		if len(after.Text) != c.line || longest != c.longest || string(l.Text) != c.before {
			t.Errorf("%q, %q: %d, %d and %q; want %d, %d", c.before, c.text, len(after.Text), longest, l.Text, c.line, c.longest)
		}
	}
	// A key that takes the next byte literally may be the last of one write.
	l, _ := new(Line).Check("aaa\x16", &Default)
	if _, longest := l.Check("\nbb", &Default); longest != 6 {
		t.Errorf("a line end behind an earlier ^V: %d, want 6", longest)
	}
}

func TestEOFKeys(t *testing.T) {
	other := Default
	other.EOF = 'q'
	for _, c := range []struct {
		before string
		modes  *Modes
		want   string
	}{
		{"", &Default, "\x04"}, {"a\n", &Default, "\x04"}, {"a", &Default, "\x04\x04"}, {"a\x04", &Default, "\x04"},
		{"a\x16", &Default, "\x04\x04\x04"}, {"\x16", &Default, "\x04\x04\x04"}, {"a", &other, "qq"}, {"a", &Modes{}, ""},
	} {
		l, _ := new(Line).Check(c.before, c.modes)
		if got := l.EOFKeys(c.modes); got != c.want {
			t.Errorf("behind %q: %q, want %q", c.before, got, c.want)
		}
	}
}

func Example() {
	var line Line
	for _, key := range []byte("make tset\x17test\n") {
		if line.Type(key, &Default) == Ended {
			fmt.Printf("%q\n", line.Text)
		}
	}
	// Output: "make test\n"
}
