package acpwire

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// The official SDKs take a message whose optional members have the wrong type,
// as if those were absent ("x-deserialize-default-on-error" in the schema of
// ACP). Go SDK 0.13 loses the message. So what it is given is made to fit the
// types that it will decode into. A member that does not fit becomes what it
// clearly means: 5 is "5" where a string belongs, "0" is 0 where a number does.
// An optional member without a clear meaning becomes null, which is absent. An
// item that does not fit an optional list is left out of it.
//
// A required member without a clear meaning is absent in a reply, which the SDK
// does not validate: the output of a command must not be lost with its truncated,
// nor its exit status with its output. In a request it is left, and is an error
// of that request; but any version of the protocol is one that the agent answers
// with its own.

// A shape is what a type of the SDK takes.
type shape struct {
	typ      reflect.Type
	kind     shapeKind
	members  map[string]member // of an object
	elem     *shape            // of a list
	variants []variant         // of a union
}

type shapeKind int

const (
	anything shapeKind = iota
	scalar             // a string, a number or a boolean
	object             // a struct
	dict               // a map
	list
	union // a struct that holds one of several
)

// A member is one of an object.
type member struct {
	shape    *shape
	required bool
}

// A variant is one of a union: the field that holds it.
type variant struct {
	field int
	shape *shape
}

var (
	shapesMu sync.Mutex
	shapes   = map[reflect.Type]*shape{} // guarded by shapesMu
)

// shapeOf returns the shape of a type.
func shapeOf(t reflect.Type) *shape {
	shapesMu.Lock()
	defer shapesMu.Unlock()
	return newShape(t)
}

// newShape returns the shape of a type. Called with shapesMu held.
func newShape(t reflect.Type) *shape {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s := shapes[t]; s != nil {
		return s
	}
	s := &shape{typ: t}
	shapes[t] = s // before its members, which may hold the type itself
	switch t.Kind() {
	case reflect.Struct:
		s.kind = object
		if s.fields(); len(s.variants) > 0 {
			s.kind = union
		}
	case reflect.String, reflect.Bool, reflect.Int, reflect.Float64:
		s.kind = scalar
	case reflect.Map:
		s.kind = dict // of anything
	case reflect.Slice:
		if t != reflect.TypeFor[json.RawMessage]() {
			s.kind, s.elem = list, newShape(t.Elem())
		}
	}
	return s
}

// fields reads the fields of a struct: members if they have names, variants if
// they are left out of its JSON. The SDK's types say "omitempty" of what the
// schema does not require, unless it has a default, which an empty object gets.
func (s *shape) fields() {
	s.members = map[string]member{}
	empty := s.decode([]byte("{}"))
	for i := range s.typ.NumField() {
		f := s.typ.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported(), name == "":
		case name == "-":
			s.variants = append(s.variants, variant{i, newShape(f.Type)})
		default:
			defaults := empty.IsValid() && !empty.Field(i).IsZero()
			s.members[name] = member{newShape(f.Type), !defaults && !strings.Contains(options, "omitempty")}
		}
	}
}

// member returns the member of a name. encoding/json takes it in any case.
func (s *shape) member(name []byte) (member, bool) {
	if m, ok := s.members[string(name)]; ok {
		return m, true
	}
	for known, m := range s.members {
		if len(known) == len(name) && strings.EqualFold(known, string(name)) {
			return m, true
		}
	}
	return member{}, false
}

// requires reports whether an object has required members.
func (s *shape) requires() bool {
	for _, m := range s.members {
		if m.required {
			return true
		}
	}
	return false
}

// An edit replaces data[start:end].
type edit struct {
	start, end int
	text       string
	member     string // the member that does not fit, "" if it does
}

// apply returns data, which begins at the index offset of the edits, with the
// edits made.
func apply(data []byte, offset int, edits []edit) []byte {
	if len(edits) == 0 {
		return data
	}
	size := len(data)
	for _, e := range edits {
		size += len(e.text)
	}
	out := make([]byte, 0, size)
	done := 0
	for _, e := range edits {
		out = append(out, data[done:e.start-offset]...)
		out = append(out, e.text...)
		done = e.end - offset
	}
	return append(out, data[done:]...)
}

// fit walks over a value, which there is, and reports whether it fits the shape
// once the edits that it notes are made. Items of a list that do not fit are
// left out if they are spare.
func (w *walker) fit(i int, s *shape, spare bool) (end int, fits bool) {
	before := len(w.edits)
	c := w.at(i)
	fits = true
	switch {
	case s.kind == anything, s.kind == dict && c == '{', c == 'n': // null is absent, here and in the SDK
		end = w.skip(i)
	case s.kind == object && c == '{':
		end = w.object(i, func(name []byte, i int) int {
			m, known := s.member(name)
			if !known {
				return w.skip(i)
			}
			end, ok := w.fitMember(name, i, m)
			fits = fits && ok
			return end
		})
	case s.kind == list && c == '[':
		end, fits = w.fitList(i, s, spare)
	case s.kind == scalar:
		end = w.skip(i)
		var text string
		if text, fits = s.take(w.data[i:end], false); text != "" {
			w.edits = append(w.edits, edit{start: i, end: end, text: text})
		}
	case s.kind == union:
		end, fits = w.fitUnion(i, s)
	default:
		end, fits = w.skip(i), false
	}
	if !fits {
		w.edits = w.edits[:before]
	}
	return end, fits
}

// fitMember is fit for a member of an object. One that may be absent can be made
// to fit always.
func (w *walker) fitMember(name []byte, i int, m member) (end int, fits bool) {
	end, fits = w.fit(i, m.shape, !m.required)
	if fits {
		return end, true
	}
	text, ok := m.shape.mean(w.data[i:end], m.required)
	switch {
	case ok:
	case !m.required, w.absent && w.depth == 1:
		text = "null"
	default:
		return end, false
	}
	w.edits = append(w.edits, edit{i, end, text, string(name)})
	return end, true
}

// mean returns what a value that does not fit clearly means. An optional list,
// object or boolean is absent instead, as in the official SDKs: a capability is
// claimed by true and nothing else.
func (s *shape) mean(value []byte, required bool) (text string, ok bool) {
	// PHP has one empty array, and Lua one empty table, for lists and objects.
	empty := func(open, end byte) bool {
		return value[0] == open && value[(&walker{data: value}).blanks(1)] == end
	}
	switch {
	case s.kind == scalar && s.typ.Kind() == reflect.Bool && !required:
	case s.kind == scalar:
		return s.take(value, true)
	case s.kind == list && required && empty('{', '}'):
		return "[]", true
	case s.kind == object && required && empty('[', ']'):
		return "{}", !s.requires()
	}
	return "", false
}

// fitList is fit for a list.
func (w *walker) fitList(i int, s *shape, spare bool) (end int, fits bool) {
	fits = true
	kept := false    // an item is
	leading := false // the last edit leaves out what none is kept before
	last := i        // the end of the item before
	end = w.list(i, func(i int) int {
		if leading {
			w.edits[len(w.edits)-1].end = i
			leading = false
		}
		end, ok := w.fit(i, s.elem, false)
		switch {
		case ok:
			kept = true
		case !spare:
			fits = false
		case kept: // with the comma in front
			w.edits = append(w.edits, edit{start: last, end: end, member: "an item"})
		default: // with the comma behind, if one comes
			w.edits = append(w.edits, edit{start: i, end: end, member: "an item"})
			leading = true
		}
		last = end
		return end
	})
	return end, fits
}

// fitUnion is fit for a union. Which variant it is the SDK knows.
func (w *walker) fitUnion(i int, s *shape) (end int, fits bool) {
	end = w.skip(i)
	raw := w.data[i:end]
	if s.decode(raw).IsValid() {
		return end, true
	}
	before := len(w.edits)
	for _, v := range s.variants {
		if _, ok := w.fit(i, v.shape, false); ok && len(w.edits) > before {
			if u := s.decode(apply(raw, i, w.edits[before:])); u.IsValid() && !u.Field(v.field).IsNil() {
				return end, true
			}
		}
		w.edits = w.edits[:before]
	}
	return end, false
}

// decode decodes a value into the shape's type; the result is not valid if it
// cannot be.
func (s *shape) decode(raw []byte) reflect.Value {
	v := reflect.New(s.typ)
	if json.Unmarshal(raw, v.Interface()) != nil {
		return reflect.Value{}
	}
	return v.Elem()
}

// take reports whether a scalar takes a value, and returns how it is to be
// written, "" for as it is. Loosely a string stands for the number or the boolean
// in it, and a number for its digits, or for whether it is 0.
func (s *shape) take(value []byte, loosely bool) (text string, ok bool) {
	quoted := value[0] == '"'
	number := value[0] == '-' || '0' <= value[0] && value[0] <= '9'
	switch kind := s.typ.Kind(); {
	case kind == reflect.Bool && loosely && (quoted || number):
		text = strings.ToLower(strings.Trim(string(value), "\" \t"))
		if f, err := strconv.ParseFloat(text, 64); err == nil {
			text = strconv.FormatBool(f != 0)
		}
		return text, text == "true" || text == "false"
	case kind == reflect.Bool:
		return "", value[0] == 't' || value[0] == 'f'
	case kind == reflect.String && number && loosely:
		return `"` + string(value) + `"`, true
	case kind == reflect.String:
		return "", quoted
	case quoted && loosely:
		text = strings.TrimSpace(unquote(value))
		if w := (walker{data: []byte(text)}); w.number(0) != len(text) {
			return "", false
		}
		better, ok := s.takeNumber(text)
		if better != "" {
			text = better
		}
		return text, ok
	case number:
		return s.takeNumber(string(value))
	}
	return "", false
}

// takeNumber is take for a number. 1.0 and 1e0 are whole numbers, too, which
// encoding/json does not see.
func (s *shape) takeNumber(value string) (text string, ok bool) {
	f, err := strconv.ParseFloat(value, 64)
	if s.typ.Kind() == reflect.Float64 {
		return "", err == nil
	}
	whole := func(value string) bool {
		_, err := strconv.ParseInt(value, 10, s.typ.Bits())
		return err == nil
	}
	if whole(value) {
		return "", true
	}
	text = strconv.FormatFloat(f, 'f', -1, 64)
	return text, whole(text)
}
