package acpwire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"strings"
)

// maxDepth is how deep values may be nested: as deep as encoding/json takes them.
const maxDepth = 10000

// A walker walks over JSON without copying it. Its methods take the index at
// which a value begins, blanks not counted, and return the one behind it, or -1
// where there is no value.
type walker struct {
	data   []byte
	depth  int
	edits  []edit // what is to be changed so that the values fit their shapes
	absent bool   // required members of the outermost object may be absent
}

// blanks returns the index of the first byte at or behind i that is no blank.
func (w *walker) blanks(i int) int {
	for i < len(w.data) && (w.data[i] == ' ' || w.data[i] == '\t' || w.data[i] == '\n' || w.data[i] == '\r') {
		i++
	}
	return i
}

// skip walks over any value.
func (w *walker) skip(i int) int {
	if i >= len(w.data) {
		return -1
	}
	switch w.data[i] {
	case '"':
		return w.text(i)
	case '{':
		return w.object(i, func(_ []byte, i int) int { return w.skip(i) })
	case '[':
		return w.list(i, w.skip)
	case 't':
		return w.literal(i, "true")
	case 'f':
		return w.literal(i, "false")
	case 'n':
		return w.literal(i, "null")
	}
	return w.number(i)
}

// object walks over an object and calls member with the name of each member and
// where its value begins; member returns where that ends.
func (w *walker) object(i int, member func(name []byte, i int) int) int {
	if w.depth++; w.depth > maxDepth {
		return -1
	}
	defer func() { w.depth-- }()
	i = w.blanks(i + 1)
	if w.at(i) == '}' {
		return i + 1
	}
	for w.at(i) == '"' {
		end := w.text(i)
		if end < 0 {
			return -1
		}
		name := w.data[i+1 : end-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			name = []byte(unquote(w.data[i:end]))
		}
		if i = w.blanks(end); w.at(i) != ':' {
			return -1
		}
		if i = member(name, w.blanks(i+1)); i < 0 {
			return -1
		}
		switch i = w.blanks(i); w.at(i) {
		case '}':
			return i + 1
		case ',':
			i = w.blanks(i + 1)
		default:
			return -1
		}
	}
	return -1
}

// list walks over an array and calls item with where each item begins; item
// returns where that ends.
func (w *walker) list(i int, item func(i int) int) int {
	if w.depth++; w.depth > maxDepth {
		return -1
	}
	defer func() { w.depth-- }()
	i = w.blanks(i + 1)
	if w.at(i) == ']' {
		return i + 1
	}
	for {
		if i = item(i); i < 0 {
			return -1
		}
		switch i = w.blanks(i); w.at(i) {
		case ']':
			return i + 1
		case ',':
			i = w.blanks(i + 1)
		default:
			return -1
		}
	}
}

// at returns the byte at i, 0 behind the end.
func (w *walker) at(i int) byte {
	if i < len(w.data) {
		return w.data[i]
	}
	return 0
}

func (w *walker) literal(i int, s string) int {
	if len(w.data)-i >= len(s) && string(w.data[i:i+len(s)]) == s {
		return i + len(s)
	}
	return -1
}

// text walks over a string. Most of a long line is one, so it goes eight bytes
// at a time over what needs no look.
func (w *walker) text(i int) int {
	for i++; ; i++ {
		for n := 8; n == 8 && len(w.data)-i >= 8; i += n {
			n = plain(binary.LittleEndian.Uint64(w.data[i:]))
		}
		switch c := w.at(i); {
		case c == '"':
			return i + 1
		case c < ' ':
			return -1
		case c == '\\':
			i++
			switch w.at(i) {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					if i++; !isHex(w.at(i)) {
						return -1
					}
				}
			default:
				return -1
			}
		}
	}
}

// plain returns how many of the first of eight bytes are no quote, no backslash
// and no control character: 8 of a byte each is in x.
func plain(x uint64) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	zero := func(v uint64) uint64 { return (v - ones) &^ v & tops } // the top bit of bytes that are 0, exact up to the first
	found := zero(x^ones*'"') | zero(x^ones*'\\') | (x-ones*' ')&^x&tops
	return bits.TrailingZeros64(found) / 8
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// number walks over a number.
func (w *walker) number(i int) int {
	digits := func() bool {
		start := i
		for '0' <= w.at(i) && w.at(i) <= '9' {
			i++
		}
		return i > start
	}
	if w.at(i) == '-' {
		i++
	}
	if w.at(i) == '0' {
		i++
	} else if !digits() {
		return -1
	}
	if w.at(i) == '.' {
		if i++; !digits() {
			return -1
		}
	}
	if c := w.at(i); c == 'e' || c == 'E' {
		if i++; w.at(i) == '+' || w.at(i) == '-' {
			i++
		}
		if !digits() {
			return -1
		}
	}
	return i
}

// unquote returns the text of a string that was walked over.
func unquote(quoted []byte) string {
	s := string(quoted[1 : len(quoted)-1])
	if strings.IndexByte(s, '\\') >= 0 {
		_ = json.Unmarshal(quoted, &s) // it is one
	}
	return s
}
