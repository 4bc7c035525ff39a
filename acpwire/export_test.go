package acpwire

import "reflect"

// MaxLine, FirstID and the tables of types are for the tests.
const (
	MaxLine = maxLine
	FirstID = firstID
)

var Params, Results, ClientParams = params, results, clientParams

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
