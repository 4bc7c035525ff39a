package acpwire

import "reflect"

// MaxLine, FirstID and the tables of types are for the tests.
const (
	MaxLine = maxLine
	FirstID = firstID
)

var Params, Results, ClientParams = params, results, clientParams

// Requires reports whether a type has required members.
func Requires(t reflect.Type) bool { return shapeOf(t).requires() }

// Lenient returns what the SDK gets of a line whose params or result have this
// type, and whether it is a message.
func Lenient(line []byte, t reflect.Type) ([]byte, bool) {
	m, err := parse(line)
	if err != nil {
		return nil, false
	}
	m.lenient(t)
	m.rewrite()
	return m.line, true
}
