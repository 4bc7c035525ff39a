package view

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Keys returns what a terminal sends for some keys, to be written with WriteInput.
// A key is a character, or has a name: Enter, Tab, Space, Backspace, Esc, Up, Down,
// Left, Right, Home, End, PageUp, PageDown, Insert, Delete, F1 to F12, in any case.
// Before it may stand C-, M- (or A-) and S- for Ctrl, Alt and Shift, as in C-c and
// S-Tab; Ctrl+c and ^C are the same as C-c. The sequences of the cursor keys are
// those that the program has asked for. The error says which name is none.
func (s *Screen) Keys(names ...string) (string, error) {
	app := s.AppCursor()
	var b strings.Builder
	for _, name := range names {
		keys, err := key(name, app)
		if err != nil {
			return "", err
		}
		b.WriteString(keys)
	}
	return b.String(), nil
}

// modifiers are what is held down with a key: the bits that xterm sends, plus one.
type modifiers int

const (
	shift modifiers = 1 << iota
	alt
	ctrl
)

var modifierNames = map[string]modifiers{
	"s": shift, "shift": shift, "m": alt, "a": alt, "alt": alt, "meta": alt, "c": ctrl, "ctrl": ctrl, "control": ctrl,
}

// plainKeys send a character.
var plainKeys = map[string]string{
	"enter": "\r", "return": "\r", "cr": "\r", "tab": "\t", "space": " ", "esc": "\x1b", "escape": "\x1b",
	"backspace": "\x7f", "bspace": "\x7f", "bs": "\x7f",
}

// cursorKeys send CSI and a letter, or SS3 and it where the program wants that.
var cursorKeys = map[string]byte{"up": 'A', "down": 'B', "right": 'C', "left": 'D', "home": 'H', "end": 'F'}

// functionKeys send SS3 and a letter, or CSI and it with modifiers.
var functionKeys = map[string]byte{"f1": 'P', "f2": 'Q', "f3": 'R', "f4": 'S'}

// numberKeys send CSI, a number and ~.
var numberKeys = map[string]int{
	"insert": 2, "ins": 2, "ic": 2, "delete": 3, "del": 3, "dc": 3,
	"pageup": 5, "pgup": 5, "ppage": 5, "pagedown": 6, "pgdn": 6, "pgdown": 6, "npage": 6,
	"f5": 15, "f6": 17, "f7": 18, "f8": 19, "f9": 20, "f10": 21, "f11": 23, "f12": 24,
}

// key returns what a terminal sends for a key.
func key(name string, app bool) (string, error) {
	held, base := splitKey(name)
	lower := strings.ToLower(base)
	switch lower {
	case "btab", "backtab":
		held, lower = held|shift, "tab"
	}
	modified := func(format string, args ...any) string {
		s := fmt.Sprintf(format, args...)
		if held != 0 {
			last := len(s) - 1
			if last == len("\x1b[") {
				s = s[:last] + "1" + s[last:]
				last++
			}
			s = s[:last] + fmt.Sprintf(";%d", held+1) + s[last:]
		}
		return s
	}
	if c, ok := cursorKeys[lower]; ok {
		if app && held == 0 {
			return "\x1bO" + string(c), nil
		}
		return modified("\x1b[%c", c), nil
	}
	if c, ok := functionKeys[lower]; ok {
		if held == 0 {
			return "\x1bO" + string(c), nil
		}
		return modified("\x1b[%c", c), nil
	}
	if n, ok := numberKeys[lower]; ok {
		return modified("\x1b[%d~", n), nil
	}
	if lower == "tab" && held == shift {
		return "\x1b[Z", nil
	}

	text, named := plainKeys[lower]
	switch r, size := utf8.DecodeRuneInString(base); {
	case named:
		if held&shift != 0 {
			return "", fmt.Errorf("view: no terminal sends anything of its own for the key %q", name)
		}
	case size == len(base) && r >= ' ' && r != 0x7f && (r != utf8.RuneError || size > 1):
		text = base
		if held&shift != 0 {
			text = strings.ToUpper(base)
		}
	default:
		return "", fmt.Errorf("view: there is no key %q: keys are single characters and names such as Enter, Up, PageDown, F1 and C-c; other text is written as it is", name)
	}
	if held&ctrl != 0 {
		c, ok := control(text)
		if !ok {
			return "", fmt.Errorf("view: no terminal sends anything of its own for the key %q", name)
		}
		text = c
	}
	if held&alt != 0 {
		text = "\x1b" + text
	}
	return text, nil
}

// splitKey returns what is held down, and the key itself.
func splitKey(name string) (held modifiers, base string) {
	for base = name; ; {
		i := strings.IndexAny(base, "-+")
		if i <= 0 || i == len(base)-1 {
			break
		}
		m, ok := modifierNames[strings.ToLower(base[:i])]
		if !ok {
			break
		}
		held, base = held|m, base[i+1:]
	}
	if len(base) == 2 && base[0] == '^' {
		held, base = held|ctrl, base[1:]
	}
	return held, base
}

// control returns the control character of a key, if it has one.
func control(text string) (string, bool) {
	if len(text) != 1 {
		return "", false
	}
	switch c := text[0]; {
	case 'a' <= c && c <= 'z', '@' <= c && c <= '_':
		return string(c & 0x1f), true
	case c == ' ':
		return "\x00", true
	case c == '?':
		return "\x7f", true
	case c == '/':
		return "\x1f", true
	}
	return "", false
}
